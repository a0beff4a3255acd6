"""Every name that others may rely on: labels, annotations, conditions, reasons, phases. Constants, and nothing else."""

from __future__ import annotations

from enum import StrEnum

GROUP = "rollplex.io"
VERSION = "v1alpha1"
PLURAL = "rollplexjobs"
FIELD_MANAGER = "rollplex-operator"

# on every child
LABEL_JOB = f"{GROUP}/job"  # the job's name; watches select by its presence, so that foreign pods cost nothing
LABEL_UID = f"{GROUP}/job-uid"  # of the very job, since another of the same name may follow
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_NODE = f"{GROUP}/node"  # index of the pod among the job's nodes
# what a child was made from, so that an unchanged one is not written again
ANNOTATION_CONTENT = f"{GROUP}/content"

CONTAINER = "trainer"  # of a pod; more than one are trainer, trainer-1, ...
JOB_MOUNT = "/etc/rollplex"
JOB_FILE = "job.yaml"
METRICS_PORT = 9464  # + index of the container
RAY_HEAD_PORT = 6379

EXIT_COMPLETE = 0
EXIT_BAD_JOB = 2
EXIT_RUN_STOPPED = 3
EXIT_RESTART = 42
EXIT_SAVED_ON_SIGTERM = 143


class Phase(StrEnum):
    """Where a job is; derived from its conditions, exactly one at a time."""

    PENDING = "Pending"  # no pods yet: invalid, queued or refused
    STARTING = "Starting"  # pods exist, not all of them run
    RUNNING = "Running"
    RESTARTING = "Restarting"  # the old pods of a restart are still there
    SUSPENDING = "Suspending"  # its pods save and end
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


TERMINAL = frozenset({Phase.COMPLETE, Phase.FAILED})


class Condition(StrEnum):
    """Types of the job's conditions."""

    ADMITTED = "Admitted"
    PODS_CREATED = "PodsCreated"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    NUMA_ALIGNED = "NumaAligned"
    CHECKPOINT_SAVED = "CheckpointSaved"


class Reason(StrEnum):
    """Why a condition is as it is. docs/conditions.md says what to do about each."""

    # Admitted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    QUEUED = "Queued"  # a queue holds the pods back by scheduling gates
    SCHEMA_TOO_OLD = "SchemaTooOld"  # the CRD lacks what this operator needs
    # PodsCreated
    CREATING = "Creating"
    ALL_CREATED = "AllCreated"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_SECURITY = "PodSecurity"
    REFUSED = "Refused"  # by the server or an admission policy, to be tried again
    INVALID_POD = "InvalidPod"  # by the server, for good
    WAITING_FOR_OLD_PODS = "WaitingForOldPods"
    NODE_LOST = "NodeLost"  # an old pod's node does not answer
    REJECTED_BY_NODE = "RejectedByNode"  # TopologyAffinityError and kin
    # Running
    ALL_RUNNING = "AllRunning"
    STARTING = "Starting"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    CONTAINER_CONFIG = "ContainerConfig"
    RESTARTING = "Restarting"
    # Suspended
    SUSPENDED_BY_USER = "SuspendedByUser"
    SUSPENDING = "Suspending"  # its pods save and end
    NOT_SUSPENDED = "NotSuspended"
    # Complete, Failed
    TARGET_STEP_REACHED = "TargetStepReached"
    NOT_YET = "NotYet"
    NONE = "None"
    BAD_JOB = "BadJob"  # exit code 2
    RUN_STOPPED = "RunStopped"  # exit code 3
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    START_DEADLINE = "StartDeadlineExceeded"
    ACTIVE_DEADLINE = "ActiveDeadlineExceeded"
    # of a restart
    POD_FAILED = "PodFailed"
    POD_LOST = "PodLost"
    DISRUPTED = "Disrupted"
    ENDED_EARLY = "EndedEarly"  # exit code 0 before the target step
    RESTARTED_IN_PLACE = "RestartedInPlace"
    # NumaAligned
    ALIGNED = "Aligned"
    CPUS_ON_ONE_NODE = "CpusOnOneNode"
    MISALIGNED = "Misaligned"
    NOT_GUARANTEED = "NotGuaranteed"  # a policy changed the pods: no exclusive CPUs
    NOT_REPORTED = "NotReported"
    # CheckpointSaved
    SAVED = "Saved"
    NO_CHECKPOINT = "NoCheckpoint"
