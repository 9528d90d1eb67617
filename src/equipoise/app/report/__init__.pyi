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
from .evidence import Findings as Findings, findings as findings
from .page import (
    Figure as Figure,
    Listing as Listing,
    Page as Page,
    Section as Section,
    Table as Table,
    markdown as markdown,
    number as number,
    plus_minus as plus_minus,
    render as render,
    with_unit as with_unit,
)
from .story import report as report
