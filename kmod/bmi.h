/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Chooses the loops that need BMI1, BMI2 and LZCNT: integer instructions, for which no state of the process has to be saved. */
#include <linux/moduleparam.h>
#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>

static bool bmi = true;
module_param(bmi, bool, 0444);
MODULE_PARM_DESC(bmi, "use BMI1, BMI2 and LZCNT if the processor has them");

/* Of the Rust half. The processor must have them. */
void restow_zstd_assume_bmi(void);

static void __init choose_loops(void)
{
	bmi = bmi && boot_cpu_has(X86_FEATURE_BMI1) && boot_cpu_has(X86_FEATURE_BMI2) && boot_cpu_has(X86_FEATURE_ABM);
	if (bmi)
		restow_zstd_assume_bmi();
}
#else
/* There are no others. */
static const bool bmi;
static inline void choose_loops(void)
{
}
#endif
