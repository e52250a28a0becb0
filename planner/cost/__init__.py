"""The cost model: operation x hardware -> seconds, from measured rates, curves and operation tables."""
