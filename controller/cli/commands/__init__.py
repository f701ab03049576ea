"""The commands of `headway`, one module for each subject.
Imports `cli/client`, `cli/cluster`, `cli/doctor`, `cli/profile_export`, `cli/render` and `cli/top`; of other packages `protos`.
"""
