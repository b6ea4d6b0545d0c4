"""Python tools that agents may call. Each really works on the text it is given."""

from experiences.tools.base import FunctionTool, Tool, ToolError, ToolResult, tools
from experiences.tools.toolbox import BUILT_IN, TRAPS, Toolbox, toolbox

__all__ = ["BUILT_IN", "TRAPS", "FunctionTool", "Tool", "ToolError", "ToolResult", "Toolbox", "toolbox", "tools"]
