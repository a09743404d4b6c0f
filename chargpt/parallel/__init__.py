"""Several processes that train one run: who they are, how they sum gradients and share weights, and how they end.

`Group` is one process alone and exchanges nothing. `Processes` are several, by the collectives of torch.distributed. This
package knows no model, no optimizer and no run.
"""
