import json
import os
import subprocess
import sys

import msgspec

from pisub.config import Settings
from pisub.ids import new_id
from pisub.record.commit import commit_end
from pisub.record.ends import initial_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.submit import submit_run
from tests.support.record_samples import dead_identity, make_result, make_spec, submit


def pisub(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "pisub", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def an_old_run(layout: Layout) -> str:
    spec = make_spec(new_id(at_ms=1_000_000))
    assert submit_run(layout, spec)
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    with lock:
        commit_end(
            layout,
            lock,
            initial_status(spec, dead_identity(), started_at=1),
            msgspec.structs.replace(make_result(spec), ended_at=1_000),
        )
    directory = layout.run(spec.run_id).dir
    for path in (*directory.iterdir(), directory):
        os.utime(path, (1_000, 1_000))
    return spec.run_id


def test_old_runs_are_shown_then_set_aside_then_removed(settings: Settings) -> None:
    layout = Layout.of(settings)
    layout.prepare()
    run_id, live = an_old_run(layout), submit(layout).run_id
    code, out, _ = pisub("prune", "--dry-run", "--json")
    document = json.loads(out)
    assert (code, document["kind"], document["isDryRun"], document["setAside"]) == (0, "pruned", True, [])
    assert document["skipped"] == [{"runId": run_id, "reason": "completion-reference", "detail": ""}]
    code, out, err = pisub("prune", "--undelivered")
    assert (code, out.split()) == (0, [run_id])
    assert "1 runs set aside; 0 removed" in err
    code, _, err = pisub("show", run_id)
    assert (code, "was removed" in err) == (6, True)
    code, out, _ = pisub("prune", "--reap", "--json")
    assert (code, json.loads(out)["removed"]) == (0, [run_id])
    assert [path.name for path in layout.runs.iterdir()] == [live]


def test_an_age_without_a_unit_is_refused(settings: Settings) -> None:
    code, _, err = pisub("prune", "--older-than", "30")
    assert (code, "is not an age" in err) == (2, True)
