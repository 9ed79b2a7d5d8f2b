static BurstPlan plan_values(void)
{
    BurstPlan p;
    memset(&p, 0, sizeof p);
    // @insert plan_fields
    return p;
}

const BurstPlan burst_plan = plan_values();
