"""One step: work items, the schedules that order them, the lanes that run them."""
