"""Headers: what integrations send along with a run."""

from __future__ import annotations

from mainspring import Mainspring, current_run
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.run import Call, Run
from mainspring.jobstores.records.calls import call_from_data, call_to_data
from tests.app.kit import LASTING, LIMIT


def show() -> dict[str, str]:
    return current_run().headers


@LASTING
def test_headers_travel_with_the_run_also_when_it_is_sent_back(app: Mainspring) -> None:
    task = app.task(show)
    assert task.enqueue().fetch().call.headers is None  # nobody listens, so there is no place for them

    @app.on("pre_enqueue")
    def add_tenant(run: Run) -> None:
        run.headers["tenant"] = "acme"

    handle = task.options(delay=60).enqueue()
    app.cancel(handle.id)
    app.retry(handle.id)
    app.move(handle.id, "mail")  # which signs the call anew
    app.start(work=True, queues=["mail"])
    assert handle.result(timeout=LIMIT) == {"tenant": "acme"}


def test_headers_that_are_no_texts_are_left_out() -> None:
    data = call_to_data(Call("shop:show", headers={"tenant": "acme"}), DEFAULT_POLICY, "r1")
    for altered, found in ((data["e"], {"tenant": "acme"}), (7, None), ({"tenant": 7}, None)):
        assert call_from_data({**data, "e": altered}, b"")[0].headers == found
