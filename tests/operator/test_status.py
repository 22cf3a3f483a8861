"""What is said of a service as a whole, and that nothing is said anew at rest."""

import json

from builders import observed as build
from builders.observed import NOW
from builders.reported import FIRST, SERVICE, brief, observed, ready_pod, report
from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_api.status import FlagGeneration
from firsttoken_operator import conditions, plan, status
from firsttoken_operator.observed import Cause


def test_a_serving_service() -> None:
    said = report(observed(ready_pod()))
    found = {each.type: brief(each) for each in said.conditions}
    assert found["SpecAccepted"] == ("True", "Accepted")
    assert found["Ready"] == ("True", "Serving")
    assert found["Progressing"] == ("False", "Complete")
    assert found["ModelResolved"] == ("True", "Resolved")
    assert found["Schedulable"] == ("True", "Scheduled")
    assert found["FlagsApplied"] == ("True", "Applied")
    assert found["MetricsAvailable"] == ("True", "Scraped")
    assert found["NameConflict"] == ("False", "NoConflict")
    assert found["UpdateAvailable"] == ("False", "UpToDate")
    assert found["ImagePinned"] == ("False", "ImageNotPinned")
    assert "GatePassed" not in found
    assert said.replicas.total == said.replicas.ready == 1
    assert said.flags == "5/5"
    assert said.flag_generation == FlagGeneration(desired=1, applied=1)
    assert said.resolved is not None
    assert said.resolved.max_model_len == 2_048
    assert said.observed_generation == 3


def test_at_rest_the_status_is_the_same_again() -> None:
    first = report(observed(ready_pod()))
    again = observed(ready_pod(), previous=first)
    made = plan.make(again, build.IMAGES, frozenset(), NOW + 3_600)
    second, _ = status.build(again, made, (), (), NOW + 3_600)
    assert status.to_wire(second) == status.to_wire(first)


def test_the_selector_is_there_from_the_first_status_on() -> None:
    said = report(build.observed(SERVICE))
    assert said.selector == f"{names.LABEL_SERVICE}=chat,{names.LABEL_ROLE}={names.ROLE_SERVING}"
    assert said.replicas.total == 0


def test_an_unreadable_spec_changes_one_condition() -> None:
    before = report(observed(ready_pod()))
    after = status.unreadable(before, 9, "chat", "spec.model: Field required", NOW)
    found = {each.type: each for each in after.conditions}
    assert brief(found["SpecAccepted"]) == ("False", "InvalidSpec")
    assert found["SpecAccepted"].observed_generation == 9
    assert brief(found["Ready"]) == ("True", "Serving")


def test_the_status_stays_under_sixteen_kilobytes() -> None:
    cause = Cause(Reason.UNSCHEDULABLE, "x" * 20_000)
    pods = [build.pod(f"p{n}", revision=FIRST.name, ready=False, cause=cause) for n in range(50)]
    said = report(observed(*pods), conflicts=tuple("y" * 500 for _ in range(20)), refusals=("z" * 20_000,))
    assert len(json.dumps(status.to_wire(said)).encode()) < 16 * 1024
    assert all(len(each.message) <= conditions.LONGEST_MESSAGE for each in said.conditions)
