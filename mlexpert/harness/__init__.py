"""The Interaction Harness: one episode of one task, its experiment tree, its tools, its journal."""
