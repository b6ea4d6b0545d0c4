"""The console's icons: paths on a 16 x 16 grid, drawn with a stroke of the text's colour."""

from __future__ import annotations

from typing import Final

PATHS: Final = {
    "overview": "M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5H7v3H2.5z",
    "agents": "M8 2v2M4.5 4h7a1.5 1.5 0 0 1 1.5 1.5v5a1.5 1.5 0 0 1-1.5 1.5h-7A1.5 1.5 0 0 1 3 10.5v-5A1.5 1.5 0 0 1 "
    "4.5 4zM6 7.2v1.3M10 7.2v1.3M5.5 14h5",
    "jobs": "M2 12.5 6 8l3 2.5L14 4M10.5 4H14v3.5",
    "trajectories": "M3.5 3.5a1 1 0 1 0 0 .01M3.5 8a1 1 0 1 0 0 .01M3.5 12.5a1 1 0 1 0 0 .01M3.5 4.6v2.3M3.5 9.1v2.3"
    "M6.5 3.5H14M6.5 8H14M6.5 12.5H14",
    "evaluations": "M8 2.5v11M3 13.5h10M3.5 5l-2 4h4zM12.5 5l-2 4h4zM3.5 5 8 3.8 12.5 5",
    "learned": "M8 2a4.3 4.3 0 0 1 2.5 7.8V11.5h-5V9.8A4.3 4.3 0 0 1 8 2zM6 13.8h4M8 11.5V8.2M6.6 6.9 8 8.2l1.4-1.3",
    "releases": "M8 1.8 13.5 5v6L8 14.2 2.5 11V5zM2.7 5.2 8 8.2l5.3-3M8 8.2v5.8",
    "checkpoints": "M4 2.5h8v11L8 10.5l-4 3z",
    "budgets": "M2.5 4.5h11v8h-11zM2.5 7h11M10.5 9.8h.8M4.5 4.5l5-2.2 1 2.2",
    "audit": "M4 2.5h6l2.5 2.5v8.5H4zM6.5 7h4M6.5 9.5h4M6.5 12h2",
    "admin": "M8 2 3 4v4c0 3 2 5 5 6 3-1 5-3 5-6V4zM6 8l1.5 1.5L10.5 6.5",
    "launch": "M5 3.5v9l7.5-4.5z",
    "play": "M5.5 4v8l6-4z",
    "pause": "M5.5 4v8M10.5 4v8",
    "cross": "M4.5 4.5l7 7M11.5 4.5l-7 7",
    "check": "M3.5 8.5 6.5 11.5 12.5 5",
    "clock": "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3l2 1.5",
    "alert": "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.3",
    "moving": "M8 2.5a5.5 5.5 0 1 0 .01 0M6.8 6v4l3.2-2z",
    "stopped": "M8 2.5a5.5 5.5 0 1 0 .01 0M6 6l4 4M10 6l-4 4",
    "search": "M7 2.5a4.5 4.5 0 1 0 .01 0M10.3 10.3 14 14",
    "menu": "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
    "light": "M8 5.2a2.8 2.8 0 1 0 .01 0M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1"
    "M11.6 4.4l1-1",
    "copy": "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
    "download": "M8 2.5v8M4.5 7.5 8 11l3.5-3.5M2.5 13.5h11",
    "share": "M8 9.5v-7M5 5l3-3 3 3M3.5 8v5.5h9V8",
    "left": "M10 3.5 5.5 8l4.5 4.5",
    "right": "M6 3.5 10.5 8 6 12.5",
    "plus": "M8 3.5v9M3.5 8h9",
    "edit": "M3 13l.7-2.8L11 3l2 2-7.2 7.3z",
    "person": "M8 2.8a2.6 2.6 0 1 0 .01 0M3 13.5c.4-2.7 2.2-4 5-4s4.6 1.3 5 4",
    "tool": "M9.8 3a3.3 3.3 0 0 0-3.2 4.5L2.6 11.5l1.9 1.9 4-4A3.3 3.3 0 0 0 13 6.2L11 8.1 9 7.9 8.8 5.9z",
    "answer": "M2.5 3h11v8h-6l-3 2.5V11h-2z",
    "verify": "M8 2.5a5.5 5.5 0 1 0 .01 0M5.5 8.2l1.8 1.8 3.2-3.6",
    "out": "M9.5 2.5h-6v11h6M7 8h6.5M11 5.5 13.5 8 11 10.5",
    "info": "M8 2.5a5.5 5.5 0 1 0 .01 0M8 7.3v3.4M8 5.1v.3",
    "external": "M6.5 3.5h-3v9h9v-3M9 2.5h4.5V7M13.5 2.5 7.5 8.5",
}

STATUS: Final = {
    "queued": "clock",
    "running": "moving",
    "paused": "pause",
    "completed": "check",
    "failed": "alert",
    "cancelled": "stopped",
}
