"""transformers' Trainer, with batches that the ranks of a plan share."""
import torch
import torch.distributed as dist
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from .shard import shard


class Repeated(Sampler):
    """A sampler whose batches of `size` come `times` times each, one after the other: one for each rank.

    A random order is the seed's and the epoch's, so that all ranks draw the same.
    """

    def __init__(self, sampler, size, times, seed):
        self.sampler, self.size, self.times, self.seed, self.epoch = sampler, size, times, seed, 0

    def __len__(self):
        return len(self.sampler) // self.size * self.size * self.times

    def __iter__(self):
        if isinstance(self.sampler, RandomSampler):
            self.sampler.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.size:
                yield from batch * self.times
                batch = []

    def set_epoch(self, epoch):
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)


def check_group(plan):
    """transformers deals batches out by rank, so ranks that share one must follow each other."""
    own = dist.get_process_group_ranks(plan.group) if plan.ranks > 1 else [0]
    if own != list(range(own[0], own[0] + plan.ranks)) or own[0] % plan.ranks:
        raise ValueError(f"the plan's group has the ranks {own}; a Trainer's must follow each other, "
                         f"from a multiple of {plan.ranks} on, as those of a mesh's last dimension do")


def check_arguments(trainer):
    """The loss of a rank's rows is its part of a sum: what would take it for a mean is refused."""
    a = trainer.args
    faults = {"train_sampling_strategy": a.train_sampling_strategy == "batch_rebalance",
              "average_tokens_across_devices": not a.average_tokens_across_devices,
              "label_smoothing_factor": a.label_smoothing_factor != 0, "n_gpu": a.n_gpu > 1,
              "compute_loss_func": trainer.compute_loss_func is not None}
    for name, there in faults.items():
        if there:
            value = getattr(a, name, "given")
            raise ValueError(f"{name}={value} is not supported: the ranks of a plan share batches, and a "
                             "rank's loss is its part of their sum")


def trainer(plan, base=None):
    """A subclass of transformers.Trainer (or of `base`, a subclass of it) whose ranks share batches.

    Its data collator returns a whole batch of at most plan.tokens tokens; each group of the plan's ranks
    takes the same.
    """
    if base is None:
        from transformers import Trainer as base
    check_group(plan)

    class Sharded(base):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            check_arguments(self)

        def _repeated(self, sampler, size, data):
            if not hasattr(data, "__len__"):
                raise ValueError(f"{type(data).__name__} has no length: give the Trainer a dataset with one")
            if len(data) % size and not self.args.dataloader_drop_last:
                raise ValueError(f"{len(data)} rows are no multiple of a batch of {size}: set "
                                 "dataloader_drop_last, or a batch of 1")
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            return Repeated(sampler or SequentialSampler(data), size, plan.ranks, seed)

        def _get_train_sampler(self, train_dataset=None):
            data = self.train_dataset if train_dataset is None else train_dataset
            return self._repeated(super()._get_train_sampler(data), self._train_batch_size, data)

        def _get_eval_sampler(self, eval_dataset):
            size, groups = self.args.eval_batch_size, self.args.world_size // plan.ranks
            sampler = self._repeated(super()._get_eval_sampler(eval_dataset), size, eval_dataset)
            if len(sampler) // size % self.args.world_size:
                raise ValueError(f"{len(eval_dataset)} rows in batches of {size} do not divide among "
                                 f"{groups} groups: some would count twice")
            return sampler

        def get_batch_samples(self, epoch_iterator, num_batches, device):
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
            samples = [shard(plan, sample) for sample in samples]
            return samples, self._get_num_items_in_batch(samples, device)

        def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
            # accelerate's gather_for_metrics would drop what it takes for repeated rows.
            self.gather_function = self.accelerator.gather
            return super().prediction_step(model, shard(plan, inputs), prediction_loss_only, ignore_keys)

    return Sharded
