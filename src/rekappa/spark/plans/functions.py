"""What is known of Spark's operators and functions, by the names of their classes (Spark 4.1).

The lists say what is safe: the same output whatever the order in which events come and however they are grouped
into batches. A name that stands in no list is not known to be safe. A test holds the lists against the functions
of the Spark that runs.
"""

from __future__ import annotations

from enum import IntEnum

from rekappa.rate import PACED
from rekappa.spark.plans.scalars import SCALARS
from rekappa.spark.plans.tree import Expression, Node


class Doubt(IntEnum):
    """How far a value may differ when its inputs come in another order, least first."""

    ROUNDING = 1
    ORDER = 2
    """A set: its elements are the same, their order means nothing."""
    LIST = 3
    """A list: its elements are the same, their order is that of the events."""
    ANY = 4


NODES = {
    "Project", "Filter", "Join", "Union", "Aggregate", "Expand", "Generate", "EventTimeWatermark",
    "UpdateEventTimeWatermarkColumn", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit",
    "LocalLimit", "Offset", "Tail", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions",
    "ResolvedHint", "SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "CollectMetrics", "Sample",
}  # fmt: skip
"""Operators that are known: each row by itself, or counted among the kinds of state."""

OPAQUE = {
    "MapInPandas": "mapInPandas(), which sees batches of rows",
    "MapInArrow": "mapInArrow(), which sees batches of rows",
    "FlatMapGroupsInPandas": "applyInPandas(), which sees one batch's rows of a group",
    "FlatMapGroupsInArrow": "applyInArrow(), which sees one batch's rows of a group",
    "FlatMapCoGroupsInPandas": "cogroup().applyInPandas(), which sees one batch's rows of a group",
    "FlatMapCoGroupsInArrow": "cogroup().applyInArrow(), which sees one batch's rows of a group",
    "ScriptTransformation": "TRANSFORM, which sees batches of rows",
}
"""Operators that hand rows to code in batches, by the words for them."""

EXACT = {
    "Count", "CountIf", "Min", "Max", "BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "BitXorAgg",
    "HyperLogLogPlusPlus", "CountMinSketchAgg", "BitmapConstructAgg", "BitmapAndAgg", "BitmapOrAgg",
    "Percentile", "PercentileCont", "PercentileDisc", "Median", "RegrCount", "PivotFirst", "Sum", "Average",
}  # fmt: skip
"""Aggregates that are the same in any order, unless their result is a floating-point number that was added up."""

_ADDED = {"Sum", "Average"}
_ROUNDED = {
    "StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "Skewness", "Kurtosis", "Corr", "PearsonCorrelation",
    "CovPopulation", "CovSample", "RegrR2", "RegrSlope", "RegrIntercept", "RegrSXX", "RegrSXY", "RegrSYY", "RegrAvgX",
    "RegrAvgY", "Product",
}  # fmt: skip
_UNSAFE = {
    "MaxBy": "max_by()", "MinBy": "min_by()", "First": "first()", "Last": "last()", "AnyValue": "any_value()",
    "Mode": "mode()", "ListAgg": "listagg()", "ApproximatePercentile": "percentile_approx()",
    "HistogramNumeric": "histogram_numeric()", "HllSketchAgg": "hll_sketch_agg()", "HllUnionAgg": "hll_union_agg()",
    "KllSketchAggBigint": "kll_sketch_agg_bigint()", "KllSketchAggDouble": "kll_sketch_agg_double()",
    "KllSketchAggFloat": "kll_sketch_agg_float()", "KllMergeAggBigint": "kll_merge_agg_bigint()",
    "KllMergeAggDouble": "kll_merge_agg_double()", "KllMergeAggFloat": "kll_merge_agg_float()",
    "ThetaSketchAgg": "theta_sketch_agg()", "ThetaUnionAgg": "theta_union_agg()",
    "ThetaIntersectionAgg": "theta_intersection_agg()", "ApproxTopK": "approx_top_k()",
    "ApproxTopKAccumulate": "approx_top_k_accumulate()", "ApproxTopKCombine": "approx_top_k_combine()",
}  # fmt: skip
"""Aggregates that depend on which event comes first where events tie, or whose sketches depend on order."""
_LABELS = _UNSAFE | {
    "Sum": "sum()", "Average": "avg()", "CollectList": "collect_list()", "CollectSet": "collect_set()",
    "StddevSamp": "stddev()", "StddevPop": "stddev_pop()", "VarianceSamp": "variance()", "VariancePop": "var_pop()",
}  # fmt: skip
AGGREGATES: dict[str, Doubt | None] = {
    **dict.fromkeys(EXACT),
    **dict.fromkeys(_ROUNDED, Doubt.ROUNDING),
    "CollectSet": Doubt.ORDER,
    "CollectList": Doubt.LIST,
    **dict.fromkeys(_UNSAFE, Doubt.ANY),
}
"""Every aggregate that is known."""

CLOCK = {
    "CurrentTimestamp": "current_timestamp()", "Now": "now()", "CurrentDate": "current_date()",
    "LocalTimestamp": "localtimestamp()", "CurrentTime": "current_time()",
    "CurrentBatchTimestamp": "current_timestamp()",
}  # fmt: skip
RANDOM = {
    "Rand": "rand()", "Randn": "randn()", "Uuid": "uuid()", "Shuffle": "shuffle()", "RandStr": "randstr()",
    "Uniform": "uniform()", "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()", "AesEncrypt": "aes_encrypt() (unless it is given its vector)",
}  # fmt: skip
"""Values that no mode gives again, and that production would not give twice either."""

ORDER_KEEPING = {
    "Alias", "Coalesce", "If", "CaseWhen", "KnownNullable", "KnownNotNull", "ArrayDistinct", "ArrayCompact",
    "ArrayFilter", "ArrayTransform", "ArrayRemove", "ArrayUnion", "ArrayExcept", "ArrayIntersect",
}  # fmt: skip
"""Functions of a collection that give a collection with the same elements, in whatever order they were."""
_ORDER_FORGETTING = {
    "SortArray",
    "Size",
    "ArraySize",
    "ArrayMax",
    "ArrayMin",
    "ArrayContains",
    "ArraysOverlap",
    "Explode",
}
_DEFAULT_COMPARATOR = {
    "LambdaFunction",
    "NamedLambdaVariable",
    "If",
    "And",
    "IsNull",
    "Literal",
    "GreaterThan",
    "LessThan",
}

_ROWWISE = (100, 101, 200, 250)
"""Python functions of a row, or of columns of rows: plain, with Arrow, of pandas series, of Arrow arrays."""


def only_paces(node: Node) -> bool:
    """Whether an operator is rekappa's own cap on rows per second, which lets every row pass as it is."""
    return node.name == "Filter" and all(
        one.name == "ScalaUDF" and one.fields.get("udfName") == PACED for one in node.of("condition")
    )


def is_known(part: Expression) -> bool:
    """Whether an expression is one that some list speaks of; of functions in Python, what they are declared to be."""
    if part.name in ("PythonUDF", "ScalaUDF"):
        rowwise = part.name == "ScalaUDF" or part.fields.get("evalType") in _ROWWISE
        return rowwise and part.fields.get("udfDeterministic") is not False
    return part.name in SCALARS or part.name in AGGREGATES or part.name in CLOCK or part.name in RANDOM


def label(part: Expression) -> str:
    """The words for a function in a message."""
    if part.name in ("PythonUDF", "ScalaUDF"):
        name = part.fields.get("name") or part.fields.get("udfName") or "udf"
        if part.fields.get("udfDeterministic") is False:
            return f"{name}() (marked nondeterministic)"
        return f"{name}() (a Python function that sees batches of rows)"
    if part.name == "PythonUDAF":
        return f"{part.fields.get('name') or 'udf'}() (an aggregate in Python)"
    return _LABELS.get(part.name, f"function {part.name}")


def doubt_of(aggregate: str, result: str) -> Doubt | None:
    """What is known of an aggregate that gives a `result` of this type; what is not known may be anything."""
    if aggregate in _ADDED:
        return Doubt.ROUNDING if result in ("float", "double") else None
    if aggregate in ("Min", "Max") and "collate" in result:
        # Of texts that count as equal, the first one wins.
        return Doubt.ANY
    return AGGREGATES.get(aggregate, Doubt.ANY)


def forgets_order(expression: Expression) -> bool:
    """Whether a function of a collection gives the same for any order of its elements."""
    if expression.name == "ArraySort":
        comparator = expression.children[-1]
        return {part.name for part in comparator.walk()} <= _DEFAULT_COMPARATOR
    return expression.name in _ORDER_FORGETTING
