"""The reference implementation of MLRsearch on a simulated device: prints its lower bound.

Arguments: the device's limit in packets a second, the share of trials that lose one packet in ten
thousand at any load, the exceed ratio and the loss ratio of the goal.
"""

import random
import sys

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

LIMIT, NOISE, EXCEED, LOSS = (float(word) for word in sys.argv[1:5])


class Device(AbstractMeasurer):
    def __init__(self):
        self.random = random.Random(7)

    def measure(self, intended_duration, intended_load):
        offered = int(intended_duration * intended_load * 1000)
        lost = max(0.0, 1.0 - LIMIT / intended_load)
        unlucky = 1e-4 if self.random.random() < NOISE else 0.0
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=offered,
            loss_count=round(offered * max(lost, unlucky)),
        )


goal = SearchGoal(
    loss_ratio=LOSS,
    exceed_ratio=EXCEED,
    relative_width=0.005,
    initial_trial_duration=0.1,
    final_trial_duration=1.0,
    duration_sum=5.0,
    fail_fast=False,
)
config = Config()
config.goals = [goal]
config.max_load = 30e6
config.min_load = 1e3
config.warmup_duration = None
found = MultipleLossRatioSearch(config).search(Device(), debug=lambda text: None)
bound = found[goal].relevant_lower_bound
print(float(bound) if bound else 0.0)
