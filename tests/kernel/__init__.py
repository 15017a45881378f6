"""The native kernel: equal to pure Python, and never needed."""
