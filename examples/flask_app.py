"""Flask: an app factory, tasks that run in the context of the app, the dashboard mounted."""

from flask import Flask, current_app

from mainspring.contrib.flask import FlaskMainspring

jobs = FlaskMainspring()


@jobs.task
def greet(name: str) -> str:
    return f"{current_app.config['GREETING']}, {name}"


def create_app() -> Flask:
    app = Flask(__name__)
    app.config.update(GREETING="hello", MAINSPRING_URL="memory://", MAINSPRING_DASHBOARD="/jobs")
    jobs.init_app(app)

    @app.post("/greet/<name>")
    def enqueue(name: str) -> dict[str, str]:
        return {"run": greet.enqueue(name).id}

    return app


if __name__ == "__main__":
    client = create_app().test_client()
    jobs.start(work=True)  # in production: mainspring worker, with a module that calls create_app()
    run = client.post("/greet/ann").get_json()["run"]
    print("task:", jobs.handle(run).result(timeout=10))
    print("dashboard:", client.get("/jobs/runs", base_url="http://127.0.0.1").status_code)
    jobs.close()
