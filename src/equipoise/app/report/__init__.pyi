from .charts import (
    BLUE as BLUE,
    INK as INK,
    ORANGE as ORANGE,
    QUIET as QUIET,
    STYLE as STYLE,
    TERMS as TERMS,
    area as area,
    legend as legend,
    log_normal as log_normal,
    powers_of_ten as powers_of_ten,
    stacked_terms as stacked_terms,
    svg as svg,
)
from .formatting import number as number, plus_minus as plus_minus, with_unit as with_unit
from .model_findings import Findings as Findings, findings as findings, input_names as input_names
from .model_report import report as report
from .page import (
    Figure as Figure,
    Listing as Listing,
    Page as Page,
    Section as Section,
    Table as Table,
    markdown as markdown,
    render as render,
)
from .reconciliation_report import plant_report as plant_report
from .scores import score_outputs as score_outputs
