"""Statistics of captures: `collect` counts and measures into `rows`, `as_json` and `as_text` write what it found.

The text is drawn with what every report has (`report.page`, `report.when`), so this package stands above `report`.
"""
