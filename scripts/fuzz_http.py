"""What scripts/fuzz-http asks of every answer beyond the checks of schemathesis."""

import schemathesis

# Every answer that is not a success is one of these.
PROBLEM = "application/problem+json"


@schemathesis.check
def every_problem_has_its_code(ctx, response, case):
    """A 5xx is no fault by itself: a source may be down. One without a code, or of our own fault, is."""
    if response.status_code < 400 or case.path == "/readyz":
        return
    kind = response.headers.get("content-type", [""])
    kind = kind[0] if isinstance(kind, list) else kind
    assert kind == PROBLEM, f"{response.status_code} comes as {kind!r}"
    problem = response.json()
    assert problem.get("status") == response.status_code, problem
    assert problem.get("code"), problem
    assert problem["code"] != "internal", problem
    if response.status_code == 500:
        assert problem["code"] == "outcome_unknown", problem
