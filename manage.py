#!/usr/bin/env python3
"""AgentCore's command line."""

from agentcore_site.command_line import main

if __name__ == "__main__":
    main()
