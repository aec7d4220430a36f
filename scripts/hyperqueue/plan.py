"""Runs a plan's tasks by HyperQueue: plan.py HAUL PLAN [WORKERS | --server DIR]; scripts/sim-hyperqueue calls it.

Each task of the plan is a task of the job. All tasks are submitted; one that is done already ends at once.
A failed task does not affect the others. It is reported at the end, and runs again if this is called again.
"""
import json
import os
import sys
import tempfile
import time

# The client's progress bar would overwrite the output of this program. The client reads this
# variable when it is loaded.
os.environ["TQDM_DISABLE"] = "1"

from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client
from hyperqueue.cluster import WorkerConfig
from hyperqueue.output import StdioDef

# The largest number of failed tasks that are reported one by one.
REPORTED_MAX = 10


def tasks_of(plan):
    """The number of tasks in the plan's header. haul itself checks the lines."""
    try:
        with open(plan, encoding="utf-8") as lines:
            return int(json.loads(lines.readline())["tasks"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"sim-hyperqueue: {plan} is not a plan of haul sim sweep: {error}")


def submit_and_wait(client, haul, plan, count):
    """Returns whether all tasks succeeded, and reports those that failed."""
    # The output of a failed task is kept. Tasks run here, because a plan's program may be a relative path.
    output = StdioDef.remove_if_finished(f"{plan}.log/%{{TASK_ID}}")
    job = Job(max_fails=None, name=os.path.basename(plan), default_workdir=os.getcwd())
    for index in range(count):
        job.program([haul, "sim", "task", plan, str(index)], stdout=None, stderr=output)
    began = time.monotonic()
    submitted = client.submit(job)
    is_success = client.wait_for_jobs([submitted], raise_on_error=False)
    print(f"{count} tasks submitted, all ended after {time.monotonic() - began:.1f} s")
    if not is_success:
        failed = client.get_failed_tasks(submitted)
        for index, context in sorted(failed.items())[:REPORTED_MAX]:
            why = context.error.strip().replace("\n", " ")
            print(f"task {index}: {why}; {context.stderr}", file=sys.stderr)
        print(f"sim-hyperqueue: {len(failed)} of {count} tasks failed; the results of the others are kept: "
              f"run the command again", file=sys.stderr)
    return is_success


def main():
    haul, plan = sys.argv[1], os.path.realpath(sys.argv[2])
    rest = sys.argv[3:]
    count = tasks_of(plan)
    if rest[:1] == ["--server"] and len(rest) == 2:
        return submit_and_wait(Client(rest[1]), haul, plan, count)
    if len(rest) > 1 or (rest and not (rest[0].isdecimal() and 1 <= int(rest[0]) <= 1024)):
        sys.exit(f"sim-hyperqueue: {' '.join(rest)!r} is not a number of workers from 1 to 1024")
    with tempfile.TemporaryDirectory(prefix="haul-hyperqueue-") as folder, LocalCluster(folder) as cluster:
        # HyperQueue leaves the workers' sockets behind. Here they are removed with the folder.
        os.environ["TMPDIR"] = folder
        for _ in range(int(rest[0]) if rest else 2):
            cluster.start_worker(WorkerConfig(cores=1))
        return submit_and_wait(cluster.client(), haul, plan, count)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
