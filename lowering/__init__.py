"""From a model, a shape and a plan to operations and a task graph; knows no hardware speed."""
