"""An app of a shop: orders, and the tasks that follow them."""
