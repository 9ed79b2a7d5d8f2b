// @insert host_masks
