"""Statistics of captures: `collect` counts and measures into `rows`; `as_json` and `as_text` write the results.

The text uses common parts of reports (`report.page`, `report.when`), so this package depends on `report`.
"""
