"""Dates and times in the console's format, with their zone: the language's own formats would replace those of the
settings."""

DATE_FORMAT = SHORT_DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "j M Y, H:i e"
YEAR_MONTH_FORMAT = "M Y"
MONTH_DAY_FORMAT = "j M"
