"""Every bound of the protocol and the record, with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

#: Largest body sent inline; what is larger goes by a file. ``HIGH_WATER_MARK`` of these are 16 MiB, the most that
#: ZeroMQ may hold for one peer in one direction.
MAX_BODY_BYTES = 64 * KIB
#: Header of a frame: fixed fields plus a topic, an address and a trace; 2 KiB is four times the longest legal one.
MAX_HEADER_BYTES = 2 * KIB
#: Whole frame, with its 6 bytes of prelude.
MAX_FRAME_BYTES = MAX_BODY_BYTES + MAX_HEADER_BYTES + 6
#: Nesting of containers in a body. Ours need 8; msgspec recurses per level, and thread stacks are small.
MAX_BODY_DEPTH = 32
#: Characters of a topic: the longest of the seeds is `subagents:rpc:v1:reply:` and a request id.
MAX_TOPIC_CHARS = 256

#: Parts of a bundle: 64 frames, each with its stamp. In bytes a bundle of more than one frame is a body at most, so
#: that ``HIGH_WATER_MARK`` of them are not more than of bodies.
MAX_BUNDLE_PARTS = 128
MAX_BUNDLE_BYTES = MAX_BODY_BYTES

#: ZeroMQ high-water marks in messages, both directions, every socket. Above them queues are ours, bounded in bytes.
#: With 64 a thousand calls outstanding spend more time in queues than on their way.
HIGH_WATER_MARK = 256
#: The broker's own queue for one peer, and for all together, before the peer is disconnected.
MAX_PEER_QUEUE_BYTES = 8 * MIB
MAX_TOTAL_QUEUE_BYTES = 256 * MIB
#: Open calls per caller: 16 times the 1,000 open asks of the load target.
MAX_OPEN_CALLS = 16_384
#: Calls told of by one ROUTED: a body of 9 KiB at most.
MAX_ROUTED_IDS = 1_024
#: Subscriptions, watches and roles of one peer.
MAX_SUBSCRIPTIONS = 4_096
MAX_WATCHES = 16_384
MAX_ROLES = 256

#: Answers that a callee keeps for repeats, and how long past the call's deadline (decisions.md).
MAX_KEPT_ANSWERS = 4_096
KEEP_ANSWER_S = 60.0

#: A peer that has sent no Hello is forgotten after this long.
HELLO_TIMEOUT_S = 5.0
#: A client without Welcome looks for (or starts) a broker again after this long.
WELCOME_TIMEOUT_S = 1.0
#: The broker scans open calls for passed deadlines this often.
DEADLINE_TICK_S = 0.25
#: A lost connection of a living process may be resumed for this long before it counts as lost.
RESUME_GRACE_S = 2.0
#: A fresh broker parks calls to names that it does not know yet for this long.
SETTLE_S = 1.0
#: The broker leaves after this long without a peer.
IDLE_EXIT_S = 30.0
#: How long a host that died counts as "about to come back" for a question with onNoHost=fail.
HOST_GRACE_S = 10.0

#: Environment of a launch, all names and values together.
MAX_ENVIRONMENT_BYTES = MIB
#: A task's text. 4 MiB is twenty times the longest task seen in the field.
MAX_TASK_BYTES = 4 * MIB
#: Default deadline of a run's work, in milliseconds (30 minutes; contract, runs 3.1).
DEFAULT_TIMEOUT_MS = 1_800_000
#: Longest duration in milliseconds that any field takes: what a signed 32-bit timer holds (contract, runs 3.1).
MAX_DURATION_MS = 2_147_483_647
#: A name for people, in tables; and why somebody stops a run, which the record keeps.
MAX_LABEL_CHARS = 1_000
MAX_REASON_CHARS = 8_000

#: Checkpoint: one question's time and the whole call's (seed).
DEFAULT_QUESTION_TIMEOUT_MS = 180_000
DEFAULT_ASK_TIMEOUT_MS = 300_000
MAX_QUESTIONS = 32
MAX_QUESTION_CHARS = 8_000
MAX_OPTIONS = 64
MAX_OPTION_CHARS = 500
MAX_ANSWER_CHARS = 32_000
MAX_OPEN_ASKS_PER_RUN = 64
#: A child's request to its supervisor, message and interview together (contract, delegation 6), and its patience.
MAX_SUPERVISOR_BYTES = 64 * KIB
DEFAULT_SUPERVISOR_TIMEOUT_MS = 600_000
#: Between two notifications: a person who was called a moment ago needs no second call.
DEFAULT_NOTIFY_INTERVAL_MS = 5_000
#: A notification's command or request is given up after this long; a webhook's server answers in well under a second.
NOTIFY_TIMEOUT_S = 10.0
#: A line on the standard input of `pisub host --stdio`: an answer of MAX_ANSWER_CHARS, escaped, is 200 KB at most.
MAX_STDIO_LINE_BYTES = 256 * KIB

#: Journal: lifecycle lines are always written, diagnostic ones up to this many bytes (contract, runs 2.4).
MAX_EVENTS_BYTES = 50 * MIB
MAX_EVENT_LINE_BYTES = 64 * KIB
#: Captured standard output and standard error of a child, each.
MAX_OUTPUT_BYTES = 50 * MIB
#: Result text kept in result.json; the whole is beside it as a file (field-faults: preview, path, digest).
MAX_RESULT_TEXT_BYTES = 256 * KIB
#: Artifacts that a child writes, each.
MAX_ARTIFACT_BYTES = 64 * MIB

#: After a stop: TERM, this long, KILL, this long, then what is left is reported (contract, runs 3.5).
STOP_GRACE_S = 3.0
KILL_GRACE_S = 1.0
#: A runner re-reads its control inbox at least this often.
INBOX_REREAD_S = 5.0
#: status.json of a running run is rewritten at most this often (performance.md).
STATUS_COALESCE_S = 0.1

#: Steering (contract, runs 4.2): a message in UTF-8 bytes, a request's id and source in characters.
MAX_STEER_BYTES = 128 * KIB
MAX_STEER_ID_CHARS = 256
MAX_STEER_SOURCE_CHARS = 256
#: What a child says about a message.
MAX_STEER_ACK_CHARS = 1_000
#: Follow-ups that wait for one child, queued and released together.
MAX_FOLLOW_UPS = 20
#: Requests that a status file lists, newest last, and how much of each message it shows.
MAX_STEERING_SHOWN = 20
STEER_PREVIEW_CHARS = 160
#: A sender waits this long for a child's word; none is no error.
STEER_PATIENCE_S = 3.0
#: A run's session file; above it nothing is added.
MAX_SESSION_FILE_BYTES = 64 * MIB

#: Delegation (contract, runs 5.1 and 5.3): how deep, how many runs below one, and how wide a batch.
DEFAULT_MAX_DEPTH = 2
DEFAULT_SPAWNS_PER_RUN = 64
DEFAULT_CONCURRENCY = 20
DEFAULT_BATCH_TASKS = 8
DEFAULT_BATCH_CONCURRENCY = 4
#: What is shown of a tree (contract, runs 5.2): children of one run, levels.
MAX_CHILDREN_SHOWN = 16
MAX_LEVELS_SHOWN = 3

#: Attention (contract, runs 6.9): silence without an open tool, work or one tool for long, tools that fail in a row.
NEEDS_ATTENTION_AFTER_S = 60.0
ACTIVE_NOTICE_AFTER_S = 240.0
FAILED_TOOLS_NOTICE = 3

#: Providers of other work (contract, runs 6.5): how many, what they are called, what each may list.
MAX_PROVIDERS = 100
MAX_PROVIDER_NAME_CHARS = 128
MAX_WORK_ID_CHARS = 256
MAX_WORK_ITEMS = 10_000
#: One that has not said in this time how its work stands is not waited for: the wait would have no end of its own.
PROVIDER_TIMEOUT_S = 10.0

#: A capability ceiling (contract, delegation 3): entries of a list, bytes of an entry, and of who asks for it.
MAX_CEILING_ENTRIES = 256
MAX_CEILING_ENTRY_BYTES = 128
MAX_CEILING_SOURCE_BYTES = 256

#: Extension bindings (contract, delegation 2.6): namespaces, nesting, properties in all, bytes of canonical JSON.
MAX_BINDING_NAMESPACES = 16
MAX_BINDING_DEPTH = 16
MAX_BINDING_PROPERTIES = 256
MAX_BINDING_BYTES = 16 * KIB
#: An instruction of the bridge, and the name of its file (contract, delegation 1.2).
MAX_INSTRUCTION_BYTES = 64 * KIB
MAX_INSTRUCTION_NAME_BYTES = 1_024
#: A skill's file; of all skills' folders of one place so many are looked at.
MAX_SKILL_BYTES = MIB
MAX_SKILLS = 1_000

#: Structured results (contract, delegation 1.2, 1.4 and 1.9): bytes of a schema and of a value as compact JSON, nesting
#: (the outermost container is 0), items and members in all.
MAX_SCHEMA_BYTES = 64 * KIB
MAX_STRUCTURED_BYTES = MIB
MAX_JSON_DEPTH = 64
MAX_JSON_ENTRIES = 100_000

#: A structured delegation (contract, delegation 1.2 and 1.6): characters of an id (UTF-16 units, as its first peers
#: count), bytes of the rest, and identities that are remembered of each kind before no new one is taken.
MAX_DELEGATION_ID_UNITS = 256
MAX_DELEGATION_NAME_BYTES = KIB
MAX_DELEGATION_TASK_BYTES = MIB
MAX_DELEGATION_CWD_BYTES = 32 * KIB
MAX_DELEGATION_SKILLS = 256
MAX_DELEGATION_SKILLS_BYTES = 64 * KIB
MAX_DELEGATION_TEXT_BYTES = MIB
MAX_DELEGATION_HISTORY = 8_192
#: Nesting of a structured value in a response: a body has ``MAX_BODY_DEPTH`` levels, of which the message takes two.
MAX_DELEGATION_VALUE_DEPTH = 29
#: Extensions that a status lists (contract, delegation 5.5).
MAX_EXTENSIONS_SHOWN = 32
