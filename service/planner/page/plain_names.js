/** Numbers several GPUs and their memories, which records call by names of their own. */

/**
 * Call devices and memories of several GPUs by numbers, where an answer has them by their names in a record.
 * @param {any} answer a helm.plan-answer/1 @returns {any}
 */
export function withPlainNames(answer) {
  const { hardware } = answer.plan;
  const numbered = [];
  for (const [kind, named] of [
    [hardware.devices, (name) => `GPU ${name}`],
    [hardware.memories, (name) => `GPU ${name}`],
    [hardware.memories, (name) => `GPU (${name})`],
  ]) {
    const several = kind.filter((one) => ["cuda", "rocm", "xpu", "vram"].includes(one.kind));
    if (several.length > 1) several.forEach((one, place) => numbered.push([named(one.name), `GPU ${place + 1}`]));
  }
  numbered.sort(([one], [other]) => other.length - one.length);
  const plain = (text) =>
    numbered.reduce((now, [name, words]) => now.replaceAll(name, words), text).replace(/\bthe (GPU \d)/g, "$1");
  const placed = (runs) => runs.map((run) => ({ ...run, place: plain(run.place), experts: placed(run.experts ?? []) }));
  return {
    ...answer,
    in_short: plain(answer.in_short),
    blocks: placed(answer.blocks),
    prompt_blocks: placed(answer.prompt_blocks),
    memory_names: plainMemories(answer.memory_names),
    unused: answer.unused.map(plain),
    warnings: answer.warnings.map(plain),
  };
}

/** @param {Record<string, string>} names of memories @returns {Record<string, string>} `GPU 2` for `GPU vram1` */
export function plainMemories(names) {
  const several = Object.values(names).filter((name) => name.startsWith("GPU "));
  return Object.fromEntries(
    Object.entries(names).map(([name, words]) => [
      name,
      several.includes(words) ? `GPU ${several.indexOf(words) + 1}` : words,
    ]),
  );
}
