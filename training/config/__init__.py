"""The settings of a training job: schema, form, presets, validation, versions, reference page."""
