"""The RollplexJob: models, loading, faults. Shared by operator, command line and trainer; imports no torch."""

from rollplex.api.algorithm import AlgorithmSpec
from rollplex.api.data import ColumnsSpec, DataSpec, VideoSpec
from rollplex.api.errors import Fault, JobError, RunStopped
from rollplex.api.job import JobSpec, Metadata, RollplexJob
from rollplex.api.load import check, job_from, load_job, resolved_yaml
from rollplex.api.memory import MemorySpec
from rollplex.api.model import ModelSpec
from rollplex.api.output import CheckpointSpec, EvaluationSpec, TrackingSpec
from rollplex.api.parallelism import ParallelismSpec
from rollplex.api.reward import RewardSpec
from rollplex.api.rollout import RolloutSpec
from rollplex.api.schedule import ScheduleSpec
from rollplex.api.training import OptimizerSpec, TrainingSpec

__all__ = [
    "AlgorithmSpec",
    "CheckpointSpec",
    "ColumnsSpec",
    "DataSpec",
    "EvaluationSpec",
    "Fault",
    "JobError",
    "JobSpec",
    "MemorySpec",
    "Metadata",
    "ModelSpec",
    "OptimizerSpec",
    "ParallelismSpec",
    "RewardSpec",
    "RolloutSpec",
    "RollplexJob",
    "RunStopped",
    "ScheduleSpec",
    "TrackingSpec",
    "TrainingSpec",
    "VideoSpec",
    "check",
    "job_from",
    "load_job",
    "resolved_yaml",
]
