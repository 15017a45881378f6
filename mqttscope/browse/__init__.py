"""The interactive browser: an index of rows that grows while one looks, what is shown of them, and the screens.

Everything up to ``app`` is without I/O and knows no terminal: `RowStore` and `Index` remember events in rows of fixed
size, `Rows` selects among them, `lines` and `details` say what is shown of one.  ``building`` fills an index from
captures in a thread.  ``app``, ``panes`` and ``dialogs`` are the screens, and the only modules that need textual.
"""
