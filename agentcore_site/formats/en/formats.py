"""Days and times as the console writes them, with their zone: the language's own forms would take the place of what the
settings say."""

DATE_FORMAT = SHORT_DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "j M Y, H:i e"
YEAR_MONTH_FORMAT = "M Y"
MONTH_DAY_FORMAT = "j M"
