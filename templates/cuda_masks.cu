/* The masks on the host, which decides which pairs and transfers are left; the kernels have their own. */
#pragma push_macro("BURST_MASK_DATA")
#undef BURST_MASK_DATA
#define BURST_MASK_DATA static const
namespace plan_host {
// @insert host_masks
} /* namespace plan_host */
#pragma pop_macro("BURST_MASK_DATA")

