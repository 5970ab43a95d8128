"""What a status says of the extensions of a launch: ids, bounded, and no names."""

from __future__ import annotations

import hashlib

import msgspec

from pisub.record.launch_facts import status_of_launch
from pisub.record.model import RunStatus
from pisub.runs.budgets import ToolBudget
from pisub.runs.spec import LaunchFacts, ResolvedExtensions, RunSpec, resolved_extensions
from tests.support.wire_samples import sample


def test_each_is_the_beginning_of_its_digest_in_the_order_of_loading() -> None:
    ids = tuple(f"sha256:{hashlib.sha256(name.encode()).hexdigest()[:16]}" for name in ("/home/me/x.py", "b"))
    assert resolved_extensions(["/home/me/x.py", "b"]) == ResolvedExtensions(extensions=ids)


def test_at_most_thirty_two_are_listed_and_the_others_counted() -> None:
    found = resolved_extensions([str(n) for n in range(40)])
    assert (len(found.extensions), found.omitted) == (32, 8)
    assert resolved_extensions(["\udcff"]).omitted == 0


def test_a_status_has_what_the_launch_found_and_an_earlier_record_has_none() -> None:
    status = msgspec.structs.replace(sample(RunStatus, is_whole=False), launch_resolved_extensions=None)
    facts = LaunchFacts(definition_digest="d", launch_contract_digest="l", contract_digest="c")
    spec = msgspec.structs.replace(sample(RunSpec, is_whole=False), launch=facts, tool_budget=ToolBudget(hard=3))
    assert status_of_launch(status, spec).launch_resolved_extensions is None
    found = resolved_extensions(["a"])
    facts = msgspec.structs.replace(facts, resolved_extensions=found)
    shown = status_of_launch(status, msgspec.structs.replace(spec, launch=facts))
    assert (shown.launch_resolved_extensions, shown.tool_budget) == (found, ToolBudget(hard=3))
    written = msgspec.json.decode(msgspec.json.encode(shown))["launchResolvedExtensions"]
    assert written == {"extensions": list(found.extensions)}
