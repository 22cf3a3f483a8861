"""Every condition and every reason, with its meaning: what `kubectl describe` shows is explained here.

`docs/reference/reasons.md` is generated from these tables.
"""

from dataclasses import dataclass
from enum import StrEnum


class ConditionType(StrEnum):
    """Types of `status.conditions`."""

    SPEC_ACCEPTED = "SpecAccepted"
    READY = "Ready"
    PROGRESSING = "Progressing"
    MODEL_RESOLVED = "ModelResolved"
    SCHEDULABLE = "Schedulable"
    FLAGS_APPLIED = "FlagsApplied"
    METRICS_AVAILABLE = "MetricsAvailable"
    SLO_ATTAINABLE = "SLOAttainable"
    SCALING_LIMITED = "ScalingLimited"
    GATE_PASSED = "GatePassed"
    NAME_CONFLICT = "NameConflict"
    UPDATE_AVAILABLE = "UpdateAvailable"
    IMAGE_PINNED = "ImagePinned"
    AUTH_CONFIG_INVALID = "AuthConfigInvalid"


CONDITIONS: dict[ConditionType, str] = {
    ConditionType.SPEC_ACCEPTED: "The operator understands the spec and this version has all of it.",
    ConditionType.READY: "The stable revision answers requests with at least one replica.",
    ConditionType.PROGRESSING: "A new revision is on its way.",
    ConditionType.MODEL_RESOLVED: "The model was found, read, and fits; its content is pinned.",
    ConditionType.SCHEDULABLE: "Every replica has a node, its volumes and its image.",
    ConditionType.FLAGS_APPLIED: "Every ready replica runs the newest flags.",
    ConditionType.METRICS_AVAILABLE: "Every ready replica's /state is read.",
    ConditionType.SLO_ATTAINABLE: "The time-to-first-token objective is held.",
    ConditionType.SCALING_LIMITED: "Something keeps the number of replicas from what scaling would choose.",
    ConditionType.GATE_PASSED: "The regression eval of the candidate passed.",
    ConditionType.NAME_CONFLICT: "An object that is not ours has a name that we need.",
    ConditionType.UPDATE_AVAILABLE: "This operator would render the pods differently than they run.",
    ConditionType.IMAGE_PINNED: "The engine image is named by digest.",
    ConditionType.AUTH_CONFIG_INVALID: "The newest API keys cannot be used. Absent where none are asked for.",
}


class Reason(StrEnum):
    """Reasons of conditions and of `status.optimizations`."""

    # The spec
    ACCEPTED = "Accepted"
    NOT_BUILT = "NotBuilt"
    INVALID_SPEC = "InvalidSpec"
    PAUSED = "Paused"
    SUSPENDED = "Suspended"
    NAME_CONFLICT = "NameConflict"
    NO_CONFLICT = "NoConflict"

    # The model
    RESOLVED = "Resolved"
    RESOLVING = "Resolving"
    MODEL_NOT_FOUND = "ModelNotFound"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    UNSUPPORTED_ARCHITECTURE = "UnsupportedArchitecture"
    MODEL_UNREADABLE = "ModelUnreadable"
    NOT_ENOUGH_MEMORY = "NotEnoughMemory"
    RESOLVER_FAILED = "ResolverFailed"

    # Replicas
    SERVING = "Serving"
    WAITING_FOR_MODEL = "WaitingForModel"
    STARTING = "Starting"
    LOADING = "Loading"
    ENGINE_FAILED = "EngineFailed"
    CRASH_LOOP = "CrashLoop"
    COMPLETE = "Complete"
    ROLLING_OUT = "RollingOut"
    DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SCHEDULED = "Scheduled"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    MOUNT_FAILED = "MountFailed"
    CREATE_FAILED = "CreateFailed"

    # Flags
    DEFAULT = "Default"
    USER_DISABLED = "UserDisabled"
    NOT_JUDGED = "NotJudged"
    FORCED = "Forced"
    NEEDS_FLAG = "NeedsFlag"
    FORCED_OFF_BY_FLEET = "ForcedOffByFleet"
    NOT_IN_ENGINE = "NotInEngine"
    APPLIED = "Applied"
    APPLYING = "Applying"
    REJECTED_BY_ENGINE = "RejectedByEngine"

    # Measurement and scaling
    SCRAPED = "Scraped"
    SCRAPE_FAILED = "ScrapeFailed"
    NO_REPLICAS = "NoReplicas"
    WITHIN_OBJECTIVE = "WithinObjective"
    OVER_OBJECTIVE = "OverObjective"
    TOO_FEW_REQUESTS = "TooFewRequests"
    SCALER_NOT_BUILT = "ScalerNotBuilt"
    FIXED_SCALE = "FixedScale"
    EXTERNAL_SCALE = "ExternalScale"
    SCALE_IGNORED = "ScaleIgnored"
    SCALE_CLAMPED = "ScaleClamped"

    # Gate, image, updates
    GATE_NOT_BUILT = "GateNotBuilt"
    UP_TO_DATE = "UpToDate"
    NEW_RENDERING = "NewRendering"
    PINNED = "Pinned"
    IMAGE_NOT_PINNED = "ImageNotPinned"

    # API keys
    KEYS_IN_FORCE = "KeysInForce"
    KEYS_MALFORMED = "KeysMalformed"


@dataclass(frozen=True)
class Explanation:
    """What a reason means and what a person does about it."""

    meaning: str
    remedy: str = ""
    """Empty: nothing to do."""


REASONS: dict[Reason, Explanation] = {
    Reason.ACCEPTED: Explanation("Every field is valid and part of this version."),
    Reason.NOT_BUILT: Explanation(
        "A field is set that this version does not have yet; nothing is changed while it is set.",
        "Remove the field that the message names.",
    ),
    Reason.INVALID_SPEC: Explanation(
        "The stored spec does not fit this operator's types, which happens when the CRD is older or newer.",
        "Correct the field that the message names, or install the CRDs of the operator's version.",
    ),
    Reason.PAUSED: Explanation(
        "The annotation firsttoken.dev/paused is set: the operator reports and changes nothing.",
        "Remove the annotation.",
    ),
    Reason.SUSPENDED: Explanation("spec.suspend is true: no replicas run.", "Set spec.suspend to false."),
    Reason.NAME_CONFLICT: Explanation(
        "An object with a name that the service needs exists and does not belong to it; nothing was written.",
        "Rename the service, or remove the object that the message names.",
    ),
    Reason.NO_CONFLICT: Explanation("Every name the service needs is its own."),
    Reason.RESOLVED: Explanation("The model was read and its content is pinned."),
    Reason.RESOLVING: Explanation("A job reads the model's metadata; large models take minutes to hash."),
    Reason.MODEL_NOT_FOUND: Explanation(
        "The path in spec.model.source does not exist.",
        "Correct spec.model.source, or put the model there and set the annotation firsttoken.dev/refresh.",
    ),
    Reason.CLAIM_NOT_FOUND: Explanation(
        "The PersistentVolumeClaim in spec.model.source does not exist in this namespace.",
        "Create the claim or correct spec.model.source.",
    ),
    Reason.CHECKSUM_MISMATCH: Explanation(
        "The model's content is not the one that spec.model.revision names.",
        "Correct spec.model.revision or restore the file.",
    ),
    Reason.UNSUPPORTED_ARCHITECTURE: Explanation(
        "This version has no code for the model's architecture.", "Choose a Llama-family model."
    ),
    Reason.MODEL_UNREADABLE: Explanation(
        "The file or folder is damaged, incomplete or of an unknown format.",
        "Use a .gguf file or a folder with config.json, a tokenizer and *.safetensors.",
    ),
    Reason.NOT_ENOUGH_MEMORY: Explanation(
        "Weights, one longest sequence and the runtime do not fit into spec.resources.memory.",
        "Raise spec.resources.memory to the amount in the message, or lower spec.runtime.maxModelLen.",
    ),
    Reason.RESOLVER_FAILED: Explanation(
        "The job that reads the model ended without an answer.", "Read the log of the job in the message."
    ),
    Reason.SERVING: Explanation("Replicas answer."),
    Reason.WAITING_FOR_MODEL: Explanation(
        "Pods are made once the model is resolved.", "Look at ModelResolved."
    ),
    Reason.STARTING: Explanation("Pods are being created."),
    Reason.LOADING: Explanation("Engines load the model."),
    Reason.ENGINE_FAILED: Explanation(
        "An engine could not load the model; the message is its own.", "Follow the message."
    ),
    Reason.CRASH_LOOP: Explanation(
        "A container ends again and again.", "Read its log: kubectl logs <pod> -c <container> --previous."
    ),
    Reason.COMPLETE: Explanation("The newest revision serves."),
    Reason.ROLLING_OUT: Explanation("Replicas of the candidate replace those of the stable revision."),
    Reason.DEADLINE_EXCEEDED: Explanation(
        "The candidate made no progress for spec.rollout.progressDeadline and was taken back; the stable "
        "revision serves.",
        "Correct the spec; the message says what kept the candidate from becoming ready.",
    ),
    Reason.SCHEDULED: Explanation("Every replica has a node."),
    Reason.UNSCHEDULABLE: Explanation(
        "No node has room for a replica.",
        "Lower spec.resources, add nodes, or relax spec.podTemplate's placement.",
    ),
    Reason.IMAGE_PULL_FAILED: Explanation(
        "An image cannot be pulled.", "Correct spec.runtime.image or add spec.podTemplate.imagePullSecrets."
    ),
    Reason.CONTAINER_CONFIG_ERROR: Explanation(
        "A container cannot be configured, for example because a referenced object does not exist.",
        "Follow the message.",
    ),
    Reason.MOUNT_FAILED: Explanation("A volume cannot be mounted.", "Follow the message."),
    Reason.CREATE_FAILED: Explanation(
        "Pods are refused when they are created, for example by a quota or by Pod Security.",
        "Follow the message.",
    ),
    Reason.DEFAULT: Explanation("The spec does not list the flag; its default applies."),
    Reason.USER_DISABLED: Explanation("The spec says Disabled."),
    Reason.NOT_JUDGED: Explanation(
        "The flag is Gated and no regression eval has judged it, so it is off.",
        "Set its mode to Forced to use it unjudged.",
    ),
    Reason.FORCED: Explanation("The spec says Forced: on, unjudged."),
    Reason.NEEDS_FLAG: Explanation(
        "A flag that it needs is off, so it is off too.", "Enable the flag that the message names."
    ),
    Reason.FORCED_OFF_BY_FLEET: Explanation(
        "The operator was installed with this flag in forceFlagsOff, which wins over every spec.",
        "Ask whoever runs the operator.",
    ),
    Reason.NOT_IN_ENGINE: Explanation(
        "The engine of spec.runtime.engine has no way to have it otherwise.",
        "Use the engine firsttoken for flags that vLLM does not have.",
    ),
    Reason.APPLIED: Explanation("Every ready replica runs the newest flags."),
    Reason.APPLYING: Explanation("The newest flags are on their way to the replicas."),
    Reason.REJECTED_BY_ENGINE: Explanation(
        "An engine refused the newest flags. It keeps the earlier ones, or does not become ready where it "
        "has none; the message is its own.",
        "Correct spec.optimizations.",
    ),
    Reason.SCRAPED: Explanation("Every ready replica's state is read."),
    Reason.SCRAPE_FAILED: Explanation(
        "The state of a ready replica cannot be read.",
        "Check that the operator's pods may reach port 9090 of the replicas (NetworkPolicy, mesh).",
    ),
    Reason.NO_REPLICAS: Explanation("There is no replica to read."),
    Reason.WITHIN_OBJECTIVE: Explanation("The measured P95 is at most spec.slo.ttftP95."),
    Reason.OVER_OBJECTIVE: Explanation(
        "The measured P95 is above spec.slo.ttftP95.", "Add replicas or raise the objective."
    ),
    Reason.TOO_FEW_REQUESTS: Explanation("Too few requests in spec.slo.window to say."),
    Reason.SCALER_NOT_BUILT: Explanation(
        "This version does not scale on the objective yet; the mode SLO keeps spec.scaling.min replicas.",
        "Use the mode External with an HPA, or Fixed.",
    ),
    Reason.FIXED_SCALE: Explanation("spec.scaling.replicas decides."),
    Reason.EXTERNAL_SCALE: Explanation("An autoscaler decides through /scale."),
    Reason.SCALE_IGNORED: Explanation(
        "/scale was written in the mode SLO, in which it has no effect.",
        "Set spec.scaling.mode to Fixed or External.",
    ),
    Reason.SCALE_CLAMPED: Explanation(
        "spec.scaling.replicas lies outside spec.scaling.min and max and was clamped.",
        "Change min or max.",
    ),
    Reason.GATE_NOT_BUILT: Explanation("This version has no regression gate; Gated flags stay off."),
    Reason.UP_TO_DATE: Explanation("The pods are rendered as this operator would render them."),
    Reason.NEW_RENDERING: Explanation(
        "A newer operator renders the pods differently; running pods are left alone.",
        "Set the annotation firsttoken.dev/refresh to a new value, or spec.rollout.autoUpdate.",
    ),
    Reason.PINNED: Explanation("The image is named by digest."),
    Reason.IMAGE_NOT_PINNED: Explanation(
        "The image is named by a tag, so replicas may run different content.",
        "Name it by digest (name@sha256:…).",
    ),
    Reason.KEYS_IN_FORCE: Explanation("The replicas have the newest API keys."),
    Reason.KEYS_MALFORMED: Explanation(
        "A replica cannot use the Secret of spec.routing.auth. The last keys that it could read stay in "
        "force; a replica that never could is not ready.",
        "Correct the entry of keys.yaml that the message names.",
    ),
}
