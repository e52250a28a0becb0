"""`layer-split` (HELM): the first k of L + 2 units on the CPU, the rest on the accelerator.

Units: embedding, blocks, output (E-HELM-03, E-HELM-04). k = 0 and k = L + 2 are single-device plans. The search
is exhaustive; with sequential stages the optimum is the smallest feasible k (E-HELM-10), which tests check. Tasks of
such a pass follow one another, so the time between them adds to their prices, in the same places for every k with the
same last device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from helmsman.lowering.buffers import buffer_bytes, cache_expansion_bytes, expansion_bytes
from helmsman.lowering.graph import Task
from helmsman.lowering.layer_cache import cache_of, parts_caches
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import KnownPlan, Placement, shaped
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import Roles
from helmsman.planner.memory.page_locking import page_locks, pinned_extra
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.objective import objective_seconds, phase_weights, weighted_seconds
from helmsman.planner.prediction.predict import PlacementFigures, mean_step, pass_seconds
from helmsman.planner.prediction.prompt_passes import weighted_passes
from helmsman.planner.search import Score
from helmsman.planner.strategies.layer_rules import SplitQuestion, has_window, place
from helmsman.planner.strategies.layer_units import UnitCosts, UnitSizes, divided_seconds, unit_costs, unit_sizes
from helmsman.planner.strategies.layer_windows import Window, extrapolated, staged_pages
from helmsman.planner.tensor_formats import formats_from, of_pattern, told_apart
from helmsman.scheduler.iteration import Iteration, Phase, prefill
from helmsman.schemas.formats import is_plain
from helmsman.schemas.model import Model
from helmsman.schemas.predicted import Predicted
from helmsman.schemas.workload import Workload
from helmsman.timing.interference import streaming


@dataclass(frozen=True)
class LayerSplit:
    """The layer splits of one model on one machine under one workload."""

    model: Model
    roles: Roles
    workload: Workload
    options: SplitQuestion
    costs: CostModel

    def candidates(self) -> tuple[int, ...]:
        """Every k, but for those that part a layer from the cache that it reads; the plan of the CPU alone where no
        accelerator is within reach."""
        units = self.model.units
        if self.roles.accelerator is None:
            return (units,)
        if self.options.undivided:
            return (0, units)
        return tuple(k for k in range(units + 1) if not parts_caches(self.model, k - 1))

    def evaluate(self, k: int) -> Score:
        """Seconds of candidate `k` under the objective, and what it lacks."""
        return Score(self.objective(k), self.shortage(k))

    def objective(self, k: int) -> float:
        """Seconds of the objective; batches take turns."""

        def seconds(phase: Phase) -> float:
            return self.prompt_seconds(k) if phase == "prefill" else self.seconds(k, self._step)

        return weighted_seconds(self._weights, seconds)

    def prompt_seconds(self, k: int) -> float:
        """All passes over the prompt."""
        if not self._has_window(k):
            return self.seconds(k, self._prompt)
        placement = self.placement(k)
        return sum(
            weight * self.seconds(k, one_pass) for one_pass, weight in weighted_passes(placement, passes_of(placement))
        )

    def seconds(self, k: int, iteration: Iteration) -> float:
        """Closed form: the sum over units of their device's price, the crossings (eq 4.7), and the time between tasks
        and before the pass.

        A plan that streams KV overlaps transfers with work and is scheduled task by task instead, with a window by four
        and eight blocks on the accelerator."""
        if self._has_window(k):
            return self._windowed_seconds(k, iteration)
        if self._streams(k):
            return pass_seconds(lower(self.placement(k), iteration), self.costs)
        if k in (0, self.model.units):
            at = 0 if k == 0 else len(self._lettered.layouts) + 2
            return self._unit_costs(iteration, at).total(self._lettered.pattern)
        return self._divided_seconds(iteration)[k - 1]

    def _divided_seconds(self, iteration: Iteration) -> list[float]:
        """The seconds of a pass with the embedding alone on the host, with one block, ..., with all of them."""
        if iteration not in self._divided:
            host, accelerator = (self._unit_costs(iteration, k) for k in (len(self._lettered.layouts) + 1, 1))
            self._divided[iteration] = divided_seconds(host, accelerator, self._lettered.pattern)
        return self._divided[iteration]

    def shortage(self, k: int) -> tuple[tuple[str, int], ...]:
        """Bytes missing per memory (eq 4.16, for both sides)."""
        if self._has_window(k):
            return tuple(shortages(memory_use(self.placement(k))).items())
        needs: dict[str, int] = {}
        for memory, size in self._needs(k):
            needs[memory] = needs.get(memory, 0) + size
        have = {memory.name: memory.available for memory in self.roles.hardware.memories}
        return tuple((name, need - have[name]) for name, need in needs.items() if need > have[name])

    def label(self, k: int) -> str:
        """HELM's notation (HELM-50): `cpu(21)->cuda(17)`, `cpu(30)`, `cuda(38)`."""
        units, accelerator = self.model.units, self.roles.accelerator
        if accelerator is None or k == units:
            return f"cpu({units})"
        right = f"{accelerator.kind}({units - k})"
        return right if k == 0 else f"cpu({k})->{right}"

    def predicted(self, k: int) -> Predicted | PlacementFigures:
        """The prediction of candidate `k`; it is made once."""
        if k not in self._predicted:
            self._predicted[k] = self._predict(k)
        return self._predicted[k]

    def predicted_objective(self, k: int) -> float:
        """Seconds of the objective by the prediction of candidate `k`."""
        return objective_seconds(self.predicted(k), self.workload, 1, self.options.objective).mid

    def placement(self, k: int) -> Placement:
        """The rules of candidate `k`."""
        if k not in self._placements:
            self._placements[k] = place(self.model, self.roles, self.workload, self._chosen, k)
        return self._placements[k]

    def _predict(self, k: int) -> Predicted | PlacementFigures:
        return PlacementFigures(shaped(self.placement(k)), self.costs)

    def _has_window(self, k: int) -> bool:
        return has_window(self.model, self.roles, self.options, k)

    def _windowed_seconds(self, k: int, iteration: Iteration) -> float:
        """The host's blocks by their price, and what the others take in a model of fewer layers."""
        blocks, on_host = self.model.layers, max(k - 1, 0)
        cache = self.placement(k).kv[-1].cache
        assert cache is not None
        window = Window(cache.window_tokens, cache.page_tokens, cache.watermark, cache.staged_pages)
        beside = min(on_host, 2)  # while it computes, the first pages come
        formats = formats_from(self.options.formats, on_host - beside)
        options = replace(self.options, window=window, formats=formats)

        def few(count: int) -> float:
            small = self.model.with_layers(beside + count)
            placement = place(small, self.roles, self.workload, options, min(k, 1 + beside))
            return pass_seconds(lower(placement, iteration), self.costs)

        pattern = self._lettered.pattern[: max(on_host - beside, 0)]
        host = self._unit_costs(iteration, len(self._lettered.layouts) + 1).of(pattern) if pattern else 0.0
        return host + extrapolated(blocks - on_host, few)

    def _streams(self, k: int) -> bool:
        return self.options.kv_offload and self.roles.separate and 0 <= k <= self.model.layers

    def _unit_costs(self, iteration: Iteration, k: int) -> UnitCosts:
        """Prices of the units in split `k` of a copy of the model with one block of each kind."""
        key = (iteration, k)
        if key not in self._priced:
            if k not in self._small:
                self._small[k] = shaped(place(self._kinds, self.roles, self.workload, self._of_kinds, k))
            self._priced[key] = unit_costs(pass_of(self._small[k], iteration), self._kinds, self.costs)
        return self._priced[key]

    @cached_property
    def _weights(self) -> Mapping[Phase, float]:
        """Return how often the phases count."""
        return phase_weights(self.options.objective, self.workload, together=1)

    @cached_property
    def _prompt(self) -> Iteration:
        """Return the pass over the whole prompt."""
        return prefill(self.workload)

    @cached_property
    def _step(self) -> Iteration:
        """Return the mean decode step."""
        return mean_step(self.workload)

    @cached_property
    def _lettered(self) -> Model:
        """Return the model whose letters tell blocks apart by the formats of their tensors, too."""
        return told_apart(self.model, self.options.formats)

    @cached_property
    def _kinds(self) -> Model:
        """Return the model with one block of each kind."""
        return _one_of_each(self._lettered)

    @cached_property
    def _of_kinds(self) -> SplitQuestion:
        """Return the options for that model, without a window."""
        formats = of_pattern(self._lettered, self.options.formats, self._kinds.pattern)
        return replace(self.options, window=None, formats=formats)

    @cached_property
    def _chosen(self) -> SplitQuestion:
        """The options, with as many buffers for pages as keep the link busy."""
        window = self.options.window
        if window is None or window.staged is not None or not self.roles.separate:
            return self.options
        small = self.model.with_layers(2)
        few = replace(self.options, window=replace(window, tokens=window.tokens or window.least))
        graph = lower(place(small, self.roles, self.workload, few, 0), mean_step(self.workload))
        return replace(self.options, window=replace(window, staged=staged_pages(graph, self._beside_pages)))

    def _beside_pages(self, task: Task) -> float:
        """Seconds of a task while pages move."""
        slowed = self.costs.slowed()
        extra = sum(slowing for link, slowing in slowed(task) if streaming(link)) if slowed is not None else 0.0
        return self.costs.price(task).mid * (1.0 + extra)

    @cached_property
    def _predicted(self) -> dict[int, Predicted | PlacementFigures]:
        return {}

    @cached_property
    def _placements(self) -> dict[int, Placement]:
        return {}

    @cached_property
    def _small(self) -> dict[int, KnownPlan]:
        return {}

    @cached_property
    def _divided(self) -> dict[Iteration, list[float]]:
        return {}

    @cached_property
    def _priced(self) -> dict[tuple[Iteration, int], UnitCosts]:
        return {}

    def _needs(self, k: int) -> list[tuple[str, int]]:
        model, units = self.model, self.model.units
        host, sizes, layers = self.roles.host.memory, self._sizes, self.model.layers
        buffers = self._buffers
        if k == units:
            return [(host, sizes.weights + sizes.caches(0, layers) + sizes.states(0, layers)), (host, buffers)]
        assert self.roles.accelerator is not None
        target = self.roles.accelerator.memory
        there = buffers + (self._expanded if self.roles.accelerator.expands else 0)
        kv_home = host if self.options.kv_offload else target
        on_host = max(k - 1, 0)
        caches = sizes.caches if kv_home == target else sizes.caches_away
        kept = [
            (host, sizes.caches(0, on_host) + sizes.states(0, on_host)),
            (kv_home, caches(on_host, layers)),
            (target, sizes.states(on_host, layers)),
        ]
        staging = [(target, 2 * sizes.largest_cache)] if self._streams(k) and on_host < layers else []
        if staging and page_locks(self.roles.hardware):
            staging.append((host, sum(map(self._pinned, model.pattern[on_host:]))))
        if k == 0:
            return [(target, sizes.weights), *kept, *staging, (target, there)]
        split = [
            (host, sizes.embedding + sizes.blocks(0, on_host)),
            (target, sizes.blocks(on_host, layers) + sizes.output_alone(host == target)),
        ]
        return [*split, *kept, *staging, (host, buffers), (target, there)]

    def _pinned(self, letter: str) -> int:
        """Return what page-locked keys and values of a block take beyond their size."""
        cache = cache_of(self.model, self.model.pattern.index(letter))
        if cache is None:
            return 0
        widths = [cache.heads * width for width in (cache.key_dim, cache.value_dim) if width]
        return sum(pinned_extra(self.workload, width, self.options.kv) for width in widths)

    @cached_property
    def _buffers(self) -> int:
        """Where a device works."""
        return buffer_bytes(self.model, self.workload)

    @cached_property
    def _expanded(self) -> int:
        """Where values of quantised weights and caches are before they are read, on a device that reads values only."""
        weights, own = self.options.weights, self.options.formats
        needed = expansion_bytes(
            tensor
            for tensor in tensors(self.model)
            if not is_plain(own.get((tensor.tied_to or tensor.name, tensor.layer), weights))
        )
        caches = 0 if is_plain(self.options.kv) else cache_expansion_bytes(self.model, self.workload)
        return needed + caches

    @cached_property
    def _sizes(self) -> UnitSizes:
        options = self.options
        return unit_sizes(self._lettered, self.workload, options.weights, options.kv, options.formats)


@lru_cache(maxsize=64)
def _one_of_each(model: Model) -> Model:
    """Return the model with one block of each kind, in the order in which they come first."""
    return model.with_pattern("".join(dict.fromkeys(model.pattern)))
