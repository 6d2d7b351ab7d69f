int mkl_serv_intel_cpu_true(void){return 1;}
int mkl_serv_intel_cpu(void){return 1;}
