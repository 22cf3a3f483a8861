"""Metrics in the OpenMetrics format, read as a scraper reads them."""

from prometheus_client import Metric
from prometheus_client.openmetrics import parser


def families(text: bytes) -> list[Metric]:
    return list(parser.text_string_to_metric_families(text.decode()))  # type: ignore[no-untyped-call]
