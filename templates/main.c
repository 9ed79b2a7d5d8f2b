#ifndef PLAN_NO_MAIN /* tests link this file as a library */
int main(int argc, char **argv)
{
    return burst_main(&burst_plan, argc, argv);
}
#endif
