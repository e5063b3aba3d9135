"""The prompt format (prompt-format.md 2) for the conversations that the generator makes.

Covers system, user, assistant and tool messages with tools, in both modes. A prompt is a list of
`Segment`s: a marker is one added token, the rest is ordinary text that can never become a marker.
Earlier reasoning is always kept, as the format does wherever tools are declared.
"""

import dataclasses
import json
from typing import List, Optional

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, THINK_END, DSML = "<think>", "</think>", "｜DSML｜"
REMINDER, IMAGE, ACTION = "<｜latest_reminder｜>", "<｜deepseek_image｜>", "<｜action｜>"
ADDED_TOKENS = [SYSTEM, USER, ASSISTANT, THINK, THINK_END, DSML, REMINDER, ACTION, IMAGE]
_MARKERS = [BOS, EOS, PAD] + ADDED_TOKENS

_TOOLS_TEXT = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by \
writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, \
booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
<think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

%s

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


@dataclasses.dataclass
class Call:
    """One tool call; `arguments` keep their order."""

    name: str
    arguments: dict


@dataclasses.dataclass
class Message:
    """One message. A tool message is the result of one call, in call order."""

    role: str  # system, user, assistant or tool
    content: str = ""
    reasoning: str = ""
    calls: List[Call] = dataclasses.field(default_factory=list)
    tools: Optional[list] = None  # declarations, on a system message


@dataclasses.dataclass
class Segment:
    """A stretch of a prompt; `own` says that the model writes it."""

    text: str
    marker: bool = False
    own: bool = False


class _Writer:
    """Collects segments, joining adjacent text."""

    def __init__(self):
        self.segments: List[Segment] = []

    def marker(self, text: str, own: bool = False):
        self.segments.append(Segment(text, True, own))

    def text(self, text: str, own: bool = False):
        last = self.segments[-1] if self.segments else None
        if last and not last.marker and last.own == own:
            last.text += text
        elif text:
            self.segments.append(Segment(text, False, own))

    def template(self, text: str, own: bool = False):
        """Text of the format itself, whose markers are markers."""
        while True:
            at, found = min(
                ((text.find(m), m) for m in (DSML, THINK_END, THINK) if m in text),
                default=(-1, None),
            )
            if found is None:
                return self.text(text, own)
            self.text(text[:at], own)
            self.marker(found, own)
            text = text[at + len(found) :]


def dump(value) -> str:
    """JSON as the format prints it."""
    return json.dumps(value, ensure_ascii=False)


def tools_block(tools: list) -> str:
    """The text that declares tools; each is the `function` object of a declaration."""
    return _TOOLS_TEXT % "\n".join(dump(tool) for tool in tools)


def _write_call(writer: _Writer, call: Call):
    writer.template(f'<{DSML} invoke name="{call.name}">\n', True)
    for i, (key, value) in enumerate(call.arguments.items()):
        plain = isinstance(value, str)
        writer.template("\n" if i else "", True)
        writer.template(f'<{DSML} parameter name="{key}" string="{dump(plain)}">', True)
        writer.text(value if plain else dump(value), True)
        writer.template(f"</{DSML} parameter>", True)
    writer.template(f"\n</{DSML} invoke>\n", True)


def _write_assistant(writer: _Writer, message: Message, thinking: bool):
    if thinking:
        writer.text(message.reasoning, True)
        writer.marker(THINK_END, True)
    writer.text(message.content, True)
    if message.calls:
        writer.template(f"\n\n<{DSML} calls>\n", True)
        for call in message.calls:
            _write_call(writer, call)
        writer.template(f"</{DSML} calls>", True)
    writer.marker(EOS, True)


def _write_system(writer: _Writer, message: Message, i: int, thinking: bool):
    if i > 0:
        writer.marker(SYSTEM)
    writer.text(message.content)
    if message.tools:
        writer.text("\n\n")
        writer.template(tools_block(message.tools))


def _write_input(writer: _Writer, message: Message, joins: bool):
    """A user message or a tool result; both belong to one user turn."""
    if joins:
        writer.text("\n\n")
    else:
        writer.marker(USER)
    is_result = message.role == "tool"
    writer.text(f"<tool_result>{message.content}</tool_result>" if is_result else message.content)


def render(
    messages: List[Message], thinking: bool, effort: int = 75, first: int = 0, is_open: bool = True
) -> List[Segment]:
    """The segments of messages[first:], given those before; the whole prompt from first = 0.

    `is_open` adds the header of the answer that is to come, if the last message calls for one.
    """
    writer = _Writer()
    if first == 0:
        writer.marker(BOS)
    for i in range(first, len(messages)):
        message = messages[i]
        if i == 0 and (thinking or message.role == "system"):
            writer.marker(SYSTEM)
        if i == 0 and thinking:
            writer.text(
                f"Reasoning Effort: {effort} (range 1-100, the higher the value, the more thorough "
                "the reasoning)\n\n"
            )
        if message.role == "system":
            _write_system(writer, message, i, thinking)
        elif message.role == "assistant":
            _write_assistant(writer, message, thinking)
        else:
            _write_input(writer, message, i > 0 and messages[i - 1].role in ("user", "tool"))
        following = messages[i + 1].role if i + 1 < len(messages) else None
        answers = following == "assistant" or (following is None and is_open)
        if answers and (message.role in ("user", "tool") or (message.role == "system" and i > 0)):
            writer.marker(ASSISTANT)
            writer.marker(THINK if thinking else THINK_END)
    return writer.segments


def prompt_text(segments: List[Segment]) -> str:
    """The prompt as one string."""
    return "".join(segment.text for segment in segments)
