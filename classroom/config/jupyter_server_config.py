"""Settings of every student's server, and of the teacher's."""

c = get_config()  # noqa: F821 (Jupyter puts it there)

# On one machine a kernel's socket of outputs is open to every account: the keys close it.
c.KernelManager.transport_encryption = "required"
# A closed tab leaves its kernel behind, which holds 430 MB.
c.MappingKernelManager.cull_idle_timeout = 1200
c.MappingKernelManager.cull_interval = 120
