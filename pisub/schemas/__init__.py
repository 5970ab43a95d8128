"""JSON Schema, bounded: what a structured result may be, and the check of one."""

from pisub.schemas.plain import PlainJsonError, plain_json
from pisub.schemas.schema import StructuredSchema, check_schema

__all__ = ["PlainJsonError", "StructuredSchema", "check_schema", "plain_json"]
