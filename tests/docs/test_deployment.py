"""The files that the deployment pages show parse, name what exists, and give runs the time that they promise."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.pages import blocks_of


def file_of(page: str, title: str) -> str:
    (block,) = (block for block in blocks_of(page) if block.title == title)
    return block.text


def grace_of(command: str | list[str]) -> int:
    words = command.split() if isinstance(command, str) else command
    return int(words[words.index("--grace") + 1])


def units() -> dict[str, str]:
    return {Path(block.title).name: block.text for block in blocks_of("deploying/systemd.md", "ini")}


def deployment(title: str) -> Any:
    return yaml.safe_load(file_of("deploying/kubernetes.md", title))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    files = []
    for name, text in units().items():
        files.append(tmp_path / name)
        # The program of the page is not on this machine, and systemd looks for it.
        text = text.replace("/srv/shop/.venv/bin/mainspring", sys.executable).replace("/srv/shop", str(tmp_path))
        files[-1].write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in done.stderr.splitlines() if "shop-" in line] == []


def test_systemd_waits_longer_than_started_runs_get() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(units()["shop-worker.service"])
    assert int(unit["Service"]["TimeoutStopSec"]) > grace_of(unit["Service"]["ExecStart"])
    assert unit["Service"]["KillMode"] == "mixed"


def test_docker_waits_longer_than_started_runs_get() -> None:
    command = re.search(r"^CMD (\[.*\])$", file_of("deploying/docker.md", "Dockerfile"), re.M)
    assert command is not None
    grace = grace_of(yaml.safe_load(command[1]))
    (patience,) = re.findall(
        r"--stop-timeout (\d+)", "".join(block.text for block in blocks_of("deploying/docker.md", "console"))
    )
    worker = yaml.safe_load(file_of("deploying/docker.md", "compose.yaml"))["services"]["worker"]
    assert int(patience) > grace
    assert int(worker["stop_grace_period"].removesuffix("s")) > grace


def test_the_services_of_the_compose_file_name_what_is_there() -> None:
    compose = yaml.safe_load(file_of("deploying/docker.md", "compose.yaml"))
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert volumes <= set(compose["volumes"])


def test_the_image_and_its_accounts_let_the_dashboard_of_the_compose_file_start() -> None:
    dashboard = yaml.safe_load(file_of("deploying/docker.md", "compose.yaml"))["services"]["dashboard"]
    extras = re.search(r"mainspring-\*\.whl\)\[([\w,]+)\]", file_of("deploying/docker.md", "Dockerfile"))
    assert extras is not None
    assert "dashboard" in extras[1].split(",")
    command = dashboard["command"]
    assert command[command.index("--users") + 1] == f"/run/secrets/{dashboard['secrets'][0]}"
    assert command[command.index("--port") + 1] == dashboard["ports"][0].rpartition(":")[2]


@pytest.mark.parametrize("title", ["worker.yaml", "dashboard.yaml"])
def test_a_deployment_selects_its_own_pods_and_mounts_what_it_declares(title: str) -> None:
    manifest = deployment(title)
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    volumes = {volume["name"] for volume in template["spec"].get("volumes", ())}
    for container in template["spec"]["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        assert container["command"][0] == "mainspring"


def test_kubernetes_waits_longer_than_started_runs_get() -> None:
    pod = deployment("worker.yaml")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > grace_of(pod["containers"][0]["command"])


def test_the_probes_of_the_dashboard_ask_it_where_it_listens_and_by_its_own_name() -> None:
    (container,) = deployment("dashboard.yaml")["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    port, name = (command[command.index(option) + 1] for option in ("--port", "--host-name"))
    ready = container["readinessProbe"]["httpGet"]
    assert ready["path"] == "/healthz"
    assert {str(ready["port"]), str(container["livenessProbe"]["tcpSocket"]["port"])} == {port}
    assert ready["httpHeaders"] == [{"name": "Host", "value": name}]
