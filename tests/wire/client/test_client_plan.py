"""A plan against the real service: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchhvd import Horovod, Mount


def test_a_plan_looks_and_touches_nothing(place: Any, tmp_path: Path) -> None:
    before = [resource.id for resource in place.group.contents()]
    mount = place.share.mount("data")
    spec = place.spec("", nodes=2, task=Horovod(mount / "plan/train.py"))
    found = place.experiment.plan_job("job", spec, cluster=place.cluster)
    assert [text for text in found.problems if "has no 'plan/train.py'" in text] == list(found.problems) != []
    (tmp_path / "train.py").write_text("")
    place.share.upload(tmp_path / "train.py", to="plan")
    found = place.experiment.plan_job("tried", spec, cluster=place.cluster)
    assert found.good and found.nodes[0].variables["AZ_BATCHAI_JOB_NAME"] == "tried"
    assert any("retired" in text for text in found.warnings)
    assert [resource.id for resource in place.group.contents()] == before


def test_a_plan_without_cluster_and_share(place: Any) -> None:
    mounts = [
        place.share.mount("data"),
        Mount("nosuchaccount", "files", "a"),
        Mount(place.share.account.name, "x", "b"),
    ]
    found = place.experiment.plan_job("job", place.spec("true", mounts=mounts), cluster=place.workspace.cluster("none"))
    assert [mount.found for mount in found.mounts] == [True, False, False]
    assert len(found.problems) == 3


def test_a_plan_says_where_a_preparation_would_run_as_it_then_does(place: Any) -> None:
    spec = place.spec("true", preparation="echo prepared")
    said = place.experiment.plan_job("where", spec, cluster=place.cluster).preparation_place
    job = place.experiment.create_job("where", spec, cluster=place.cluster).wait(timeout=60)
    (journal,) = (file.text() for file in job.files() if file.name.startswith("execution"))
    assert ("preparation (overlay)" in journal) == (said == "in a copy-on-write view (an overlay)")
    assert ("preparation (skip)" in journal) == said.startswith("skipped: no copy-on-write view is possible here")
    assert place.experiment.plan_job("none", place.spec("true"), cluster=place.cluster).preparation_place == ""
