"""Data movement in a pass: transfers of weights, keys and values, activations and table rows between memories."""
