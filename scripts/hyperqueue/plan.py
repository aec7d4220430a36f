"""Does a plan's tasks by HyperQueue: plan.py HAUL PLAN [WORKERS | --server DIR]; scripts/sim-hyperqueue calls it.

A task of the plan is a task of the job. All are handed in: one that is done already ends at once. A task
that fails harms no other; it is told at the end, and done by calling this again.
"""
import json
import os
import sys
import tempfile
import time

# The client's bar draws over what is told here; it is asked for as the client is loaded.
os.environ["TQDM_DISABLE"] = "1"

from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client
from hyperqueue.cluster import WorkerConfig
from hyperqueue.output import StdioDef

# Failed tasks that are told one by one.
TOLD_MAX = 10


def tasks_of(plan):
    """How many tasks the plan's header tells; haul itself checks the lines."""
    try:
        with open(plan, encoding="utf-8") as lines:
            return int(json.loads(lines.readline())["tasks"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"sim-hyperqueue: {plan} is no plan of haul sim sweep: {error}")


def submit_and_wait(client, haul, plan, count):
    """Whether all tasks ended well; tells those that did not."""
    # What a task says is kept where it failed. Tasks run here: a plan's program may be a relative path.
    output = StdioDef.remove_if_finished(f"{plan}.log/%{{TASK_ID}}")
    job = Job(max_fails=None, name=os.path.basename(plan), default_workdir=os.getcwd())
    for index in range(count):
        job.program([haul, "sim", "task", plan, str(index)], stdout=None, stderr=output)
    began = time.monotonic()
    submitted = client.submit(job)
    ended_well = client.wait_for_jobs([submitted], raise_on_error=False)
    print(f"{count} tasks handed in, all ended after {time.monotonic() - began:.1f} s")
    if not ended_well:
        failed = client.get_failed_tasks(submitted)
        for index, context in sorted(failed.items())[:TOLD_MAX]:
            why = context.error.strip().replace("\n", " ")
            print(f"task {index}: {why}; {context.stderr}", file=sys.stderr)
        print(f"sim-hyperqueue: {len(failed)} of {count} tasks failed; those that are done are kept: "
              f"call it again", file=sys.stderr)
    return ended_well


def main():
    haul, plan = sys.argv[1], os.path.realpath(sys.argv[2])
    rest = sys.argv[3:]
    count = tasks_of(plan)
    if rest[:1] == ["--server"] and len(rest) == 2:
        return submit_and_wait(Client(rest[1]), haul, plan, count)
    if len(rest) > 1 or (rest and not (rest[0].isdecimal() and 1 <= int(rest[0]) <= 1024)):
        sys.exit(f"sim-hyperqueue: {' '.join(rest)!r} is no number of workers from 1 to 1024")
    with tempfile.TemporaryDirectory(prefix="haul-hyperqueue-") as folder, LocalCluster(folder) as cluster:
        # The workers' sockets, which HyperQueue leaves behind, go with the folder.
        os.environ["TMPDIR"] = folder
        for _ in range(int(rest[0]) if rest else 2):
            cluster.start_worker(WorkerConfig(cores=1))
        return submit_and_wait(cluster.client(), haul, plan, count)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
