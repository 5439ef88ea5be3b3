"""Arguments that are checked at the enqueue, by the annotations of the task: models of pydantic, or plain types."""

from pydantic import BaseModel, PositiveInt

from mainspring import Mainspring
from mainspring.errors import InvalidArguments

app = Mainspring("memory://")


class Order(BaseModel):
    sku: str
    quantity: PositiveInt


@app.task
def ship(order: Order) -> str:
    return f"{order.quantity} x {order.sku}"


@app.task(validate=True)
def refund(order_id: int, amounts: list[float]) -> float:
    return sum(amounts)


with app:
    app.start(work=True)
    print("a dict becomes the model:", ship.enqueue({"sku": "tea", "quantity": "2"}).result(timeout=10))  # type: ignore[arg-type]
    for wrong in (lambda: ship.enqueue({"sku": "tea", "quantity": 0}), lambda: refund.enqueue("7", [1.5, "x"])):  # type: ignore[arg-type,list-item]
        try:
            wrong()
        except InvalidArguments as error:
            print("refused:", error)
