"""Procedural micro tasks in the four roles of SandMLE: strategist, developer, operations engineer, writer."""
