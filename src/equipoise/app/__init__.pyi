from . import job as job, report as report, tables as tables, tuning as tuning
