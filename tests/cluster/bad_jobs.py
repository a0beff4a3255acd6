"""One table of bad jobs: each has one fault, at a known path, with a message that helps.

``rollplex validate`` finds every one of them; the API server refuses what schema and CEL can say, and the operator says
the rest. ``python -m tests.cluster.bad_jobs > docs/bad-jobs.md`` writes the table for users.
"""

from __future__ import annotations

import sys

from rollplex.api import JobError, job_from
from rollplex.api.load import Context
from tests.cluster.bad_fields import FIELDS
from tests.cluster.bad_job import OPERATOR, SAME, Bad
from tests.cluster.bad_rules import RULES

TABLE = (*FIELDS, *RULES)


def validated(job: Bad) -> list[tuple[str, str]]:
    """(path, message) of what ``rollplex validate`` finds in its own context."""
    context: Context = "cluster" if job.context == "cluster" else "job"
    try:
        job_from(job.document(), context=context, ranks=8 if job.context == "ranks" else None)
    except JobError as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


_INTRO = """\
# Bad jobs

<!-- Written by `make docs` from tests/cluster/bad_jobs.py, whose tests hold it against a real API server. -->

Each line is one change to a job that is right (as `--set` takes it), and what is said of it. `rollplex validate` says
it where you are; `kubectl apply` gets it from the API server, which refuses the job before anything is made of it. What
schema and CEL cannot say, the operator does: the job is there, its condition `Admitted` is False with reason
`InvalidSpec` and the same message, it has no pods, and it can be mended in place (`kubectl edit`).

- Unknown keys: `kubectl apply` refuses the job and names the key. With `--validate=warn` it prints a warning and the
  server drops the key; with `--validate=ignore` it is dropped without a word. Do not use these.
- A number in quotes is a text, and refused.
- An empty value (`memory:`) or null means the default, as in `rollplex validate`.
- Where a field alone is wrong, the server adds that it has not looked at the rules between fields yet.

| change | `rollplex validate` | API server |
| --- | --- | --- |
"""


def page() -> str:
    """The table, as Markdown."""
    lines = []
    for job in TABLE:
        [(path, message)] = validated(job)
        server = {SAME: "the same", OPERATOR: "takes it; the operator says so"}.get(
            job.server, f"{job.place}: {job.server}"
        )
        cells = (" ".join(f"`{change}`" for change in job.changes), f"{path}: {message}", server)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return _INTRO + "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
