"""The pages about the fleet: nodes, broken records, the system, the API."""
